"""What a user of the pipeline does not run: tables of papers, and how shipped files were made."""
