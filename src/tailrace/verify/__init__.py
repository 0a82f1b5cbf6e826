"""Verification: whether destinations hold what the source has, and how that is mended."""
