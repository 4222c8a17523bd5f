"""Objects in S3 and compatible stores: sent and fetched in checked parts, taken up again after a stop."""

from components.core.storage.s3 import S3

__all__ = ["S3"]
