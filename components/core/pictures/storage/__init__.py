"""Files and folders in S3 and compatible stores, sent and fetched by boto3's transfer manager."""

from components.core.pictures.storage.s3 import S3

__all__ = ["S3"]
