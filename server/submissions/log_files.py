"""Run logs by name, as scoring takes them."""

from collections.abc import Callable, Collection, Iterator, Mapping


class LogFiles(Mapping[str, bytes]):
    """Run logs by name, each read only when it is asked for: together they may be large."""

    def __init__(self, names: Collection[str], read: Callable[[str], bytes]) -> None:
        self._names = names
        self._read = read

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # A mapping's own way to answer this is to read the file.

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
