"""The tables that prompt tasks ask about, read as rows of inputs."""
