"""Fine-tuning methods, one file each; a file's name is the method's name and its key in params.yaml."""
