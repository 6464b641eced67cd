"""A broker in Python, where no redis-server is to be had: `stand_in_broker PORT`."""

import sys

from fakeredis import TcpFakeServer

if __name__ == "__main__":
    TcpFakeServer(("127.0.0.1", int(sys.argv[1]))).serve_forever()
