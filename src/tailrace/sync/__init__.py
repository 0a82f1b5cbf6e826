"""Sync: tables of databases that come and go, each written anywhere, each getting what it should have."""
