"""A shop: a SQLite database that somebody is busy with."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from contextlib import closing
from typing import Final

_TABLES: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT, city TEXT);
    CREATE TABLE products (sku TEXT PRIMARY KEY, title TEXT NOT NULL, price REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, status TEXT NOT NULL, total REAL);
    CREATE TABLE order_lines (
        order_id INTEGER, line INTEGER, sku TEXT, quantity INTEGER, PRIMARY KEY (order_id, line)
    ) WITHOUT ROWID;
"""
_CITIES: Final = ("Zürich", "Bern", "Basel", "Genève", "Lugano")
_STATUS: Final = ("new", "paid", "packed", "sent")
_PAUSE_S: Final = 0.01


def make_shop(path: str, customers: int, orders: int) -> None:
    """A shop that has been open for a while."""
    chosen = random.Random(7)  # noqa: S311  not a secret
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.executescript(_TABLES)
        shop.executemany(
            "INSERT INTO customers VALUES (?, ?, ?, ?)",
            ((n, f"Customer {n}", f"c{n}@example.org", chosen.choice(_CITIES)) for n in range(customers)),
        )
        shop.executemany(
            "INSERT INTO products VALUES (?, ?, ?)",
            ((f"P{n:04d}", f"Product {n}", chosen.randint(100, 20_000) / 100) for n in range(500)),
        )
        for number in range(orders):
            _order(shop, chosen, number, customers)


class Business(threading.Thread):
    """Orders come in, are paid, sent and sometimes cancelled, until it is closed."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(name="shop", daemon=True)
        self.transactions = 0
        self.is_over = threading.Event()
        self._path = path
        self._seconds = seconds
        self._closed = threading.Event()
        self._random = random.Random(11)  # noqa: S311  not a secret

    def run(self) -> None:
        end_s = time.monotonic() + self._seconds
        try:
            with closing(sqlite3.connect(self._path, timeout=60)) as shop:
                (customers,) = shop.execute("SELECT count(*) FROM customers").fetchone()
                (number,) = shop.execute("SELECT max(id) + 1 FROM orders").fetchone()
                while time.monotonic() < end_s and not self._closed.wait(_PAUSE_S):
                    with shop:
                        number += self._transact(shop, number, customers)
                    self.transactions += 1
        finally:
            self.is_over.set()

    def close(self) -> None:
        """No more business."""
        self._closed.set()
        self.join()

    def _transact(self, shop: sqlite3.Connection, number: int, customers: int) -> int:
        """One transaction; returns how many orders are new."""
        what, order = self._random.random(), self._random.randrange(number)
        if what < 0.5:
            _order(shop, self._random, number, customers)
            return 1
        if what < 0.8:
            shop.execute("UPDATE orders SET status = ? WHERE id = ?", (self._random.choice(_STATUS), order))
        elif what < 0.9:
            shop.execute("DELETE FROM order_lines WHERE order_id = ?", (order,))
            shop.execute("DELETE FROM orders WHERE id = ?", (order,))
        elif what < 0.97:
            price = self._random.randint(100, 20_000) / 100
            shop.execute("UPDATE products SET price = ? WHERE sku = ?", (price, f"P{self._random.randrange(500):04d}"))
        else:
            customer = self._random.randrange(customers)
            shop.execute("UPDATE customers SET city = ? WHERE id = ?", (self._random.choice(_CITIES), customer))
        return 0


def _order(shop: sqlite3.Connection, chosen: random.Random, number: int, customers: int) -> None:
    lines = [
        (number, line, f"P{chosen.randrange(500):04d}", chosen.randint(1, 5)) for line in range(chosen.randint(1, 4))
    ]
    total = round(sum(quantity * 9.95 for *_, quantity in lines), 2)
    shop.execute("INSERT INTO orders VALUES (?, ?, 'new', ?)", (number, chosen.randrange(customers), total))
    shop.executemany("INSERT INTO order_lines VALUES (?, ?, ?, ?)", lines)
