"""What `doctor` asks, in SQL."""

from __future__ import annotations

from typing import Final

WAL_LEVEL: Final = "SELECT current_setting('wal_level')"
MAY_REPLICATE: Final = """
    SELECT rolsuper OR rolreplication OR EXISTS (
        SELECT 1 FROM pg_roles r WHERE r.rolname IN ('rds_replication', 'cloudsqlsuperuser')
        AND pg_has_role(current_user, r.oid, 'member')), rolname
    FROM pg_roles WHERE rolname = current_user
"""
MAY_CREATE: Final = "SELECT has_database_privilege(current_database(), 'CREATE')"
SLOTS: Final = "SELECT (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')::int"
MAY_WRITE: Final = """
    SELECT has_database_privilege(current_database(), 'CREATE'), rolsuper FROM pg_roles WHERE rolname = current_user
"""
