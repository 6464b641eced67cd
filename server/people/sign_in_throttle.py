"""Throttle failed sign-ins by address."""

import ipaddress
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

MOST_FAILURES = 10
WINDOW_SECONDS = 300.0
MOST_ADDRESSES = 10_000


class FailedSignIns:
    """Sliding window of failures per address, of this process, of bounded size."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def seconds_to_wait(self, address: str) -> float:
        """Seconds until an address may try again; 0 if it may at once."""
        with self._lock:
            failures = self._recent(network_of(address))
            if len(failures) < MOST_FAILURES:
                return 0.0
            return failures[-MOST_FAILURES] + WINDOW_SECONDS - self._clock()

    def note(self, address: str) -> None:
        """Count a failure."""
        with self._lock:
            network = network_of(address)
            failures = self._recent(network)
            failures.append(self._clock())
            self._failures[network] = failures
            self._failures.move_to_end(network)
            while len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, network: str) -> deque[float]:
        failures = self._failures.get(network, deque(maxlen=MOST_FAILURES))
        since = self._clock() - WINDOW_SECONDS
        while failures and failures[0] <= since:
            failures.popleft()
        return failures


def network_of(address: str) -> str:
    """Network of an address: itself, or for IPv6 its /64, which one host has as a whole.

    A socket that listens for both kinds gives IPv4 addresses as IPv6 ones, all of a single /64.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))
