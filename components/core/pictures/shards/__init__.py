"""Lists webdataset shards (img2dataset's layout) on disk or in S3, and reads their samples undecoded."""
