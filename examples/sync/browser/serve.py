"""A page in the browser as one more node: serves the page, and a central database that it may call.

python serve.py              # the central database is central.db here; any other one is named as in two_laptops.py
"""

import secrets
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from two_laptops import central_store

from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer


class PageHandler(SimpleHTTPRequestHandler):
    """The files beside this one, and nothing said about who asks for them."""

    def log_message(self, *_: object) -> None:
        return


def page_server(port: int = 0) -> ThreadingHTTPServer:
    """Serves the page on this machine; in earnest any web server does."""
    handler = partial(PageHandler, directory=str(Path(__file__).parent))
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(address: str) -> None:
    store, word = central_store(address), secrets.token_urlsafe(24)
    pages = page_server(8088)
    origin = f"http://127.0.0.1:{pages.server_port}"
    with SyncServer(store, "127.0.0.1:8087", ServerOptions(enrol=word, origins=(origin,))) as central:
        print(f"Open {origin}/ and connect to {central.url} with the word for newcomers {word}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pages.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "central.db")
