"""The stages of cliptune as plain Python; nothing here knows about Prefect."""
