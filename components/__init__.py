"""The stages of cliptune as plain Python, which never imports Prefect."""
