"""The same pipeline as orders.yml, declared in Python. Run it: it ends when everything is there."""

from __future__ import annotations

import os

from tailrace.adaptor.lake import lake
from tailrace.adaptor.sqlite import sqlite
from tailrace.pipeline import Pipeline
from tailrace.transform import omit, skip

orders = (
    Pipeline("orders")
    .read(sqlite(os.environ.get("SHOP_DB", "shop.db")), namespace=r"main\..*")
    .through(omit("email", "phone"), skip("total", ">", 0))
    .write(lake("lake"), name="lake", namespace=r"main\.(orders|customers)")
    .write(sqlite("copy.db"), name="copy", on_error="dead_letter")
)

if __name__ == "__main__":
    print(orders.run("once"))
