"""Encodings and tags as RFC 9110 writes them."""

import pytest

from server.base.http import is_known, takes_gzip


@pytest.mark.parametrize(
    ("encodings", "is_taken"),
    [
        (b"compress, gzip", True),
        (b"", False),
        (b"compress;q=0.5, gzip;q=1.0", True),
        (b"gzip;q=1.0, identity; q=0.5, *;q=0", True),
        (b"gzip;q=0", False),
        (b"br, GZIP ; Q=0.000", False),
        (b"*;q=0, br", False),
        (b"gzip;q=0, *", False),
        (b"x-gzip", True),
        (b"br, gzipped", False),
    ],
)
def test_gzip_is_taken_where_it_is_named_with_a_weight(encodings, is_taken):
    assert takes_gzip({"headers": [(b"accept-encoding", encodings)]}) is is_taken


@pytest.mark.parametrize(
    ("tags", "is_same"),
    [
        (b'W/"xyzzy"', True),
        (b'"xyzzy"', True),
        (b'"r2d2xxxx", W/"xyzzy","c3piozzzz"', True),
        (b"*", True),
        (b'"r2d2xxxx"', False),
        (b"xyzzy", False),
    ],
)
def test_tags_are_compared_weakly_and_a_star_is_any(tags, is_same):
    assert is_known({"headers": [(b"if-none-match", tags)]}, 'W/"xyzzy"') is is_same
