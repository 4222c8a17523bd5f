"""Tables of papers, and how shipped files were made: users of the pipeline run none of it."""
