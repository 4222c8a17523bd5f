"""`python -m components.cli` is `cliptune`."""

from components.cli import app

if __name__ == "__main__":
    app()
