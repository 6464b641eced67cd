"""Boards as tests read and answer them: the columns of each row."""

from finishline.api.boards import PATHS, flat


def rows_of(board):
    return [flat(row) for row in board["entries"]]


def as_row(columns):
    row = {}
    for column, value in columns.items():
        name, *part = PATHS[column]
        if part:
            row.setdefault(name, {})[part[0]] = value
        else:
            row[name] = value
    return row
