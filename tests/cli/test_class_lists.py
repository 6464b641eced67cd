"""`finishline admin invite add --from`: lists as spreadsheets write them, and what is wrong."""

import csv
import io

import pytest

LINK = "https://lab.example/join/1-abc"


@pytest.fixture
def invited(standin, finishline, tmp_path):
    standin.answer("POST /api/v1/invitations", {"link": LINK}, status=201)

    def invite(content, *options):
        path = tmp_path / "students.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return finishline("admin", "invite", "add", "--from", str(path), *options)

    return invite


def rows(ran):
    assert ran.code == 0, ran.err
    return list(csv.DictReader(io.StringIO(ran.out)))


@pytest.mark.parametrize(
    "content",
    [
        "name,email\nJürgen Müller,j@uni.example\n",
        "\ufeffE-Mail;Name;Group\r\nj@uni.example;Jürgen Müller;3\r\n",
        "Name\tMail\nJürgen Müller\tj@uni.example\n".encode("cp1252"),
        "Group;Student;Mail\n;;\n3;Jürgen Müller;j@uni.example\n\n",
    ],
)
def test_a_list_of_any_spreadsheet_is_read(content, invited, standin):
    found = rows(invited(content, "--domain", "uni.example", "--until", "2027-02-01"))
    assert found == [{"name": "Jürgen Müller", "email": "j@uni.example", "link": LINK}]
    (asked,) = standin.asked
    for word in ('"Jürgen Müller"', '"uni.example"', '"2027-02-01"', '"submitter"'):
        assert word.encode() in asked.body.replace(b"\\u00fc", "ü".encode()), word
    assert b"j@uni.example" not in asked.body


def test_each_person_has_one_link_and_a_line_that_repeats_another_is_told(invited, standin):
    made = {"link": LINK, "remark": "Approve them."}
    standin.answers["POST /api/v1/invitations"] = [(201, made)]
    ran = invited("name,email\nAnn,a@u.example\nBo O'Hara,b@u.example\nAnne,A@u.example\n")
    assert ran.err.count("warning: Approve them.") == 1
    assert [row["name"] for row in rows(ran)] == ["Ann", "Bo O Hara"]
    assert "line 4 repeats line 2 (A@u.example): left out" in ran.err
    assert len(standin.asked) == 2


@pytest.mark.parametrize(
    ("content", "line", "field"),
    [
        ("name,email\nAnn,a@u.example\nBo,b\n", 3, "email"),
        ("name,email\nAnn,a@else.example\n", 2, "email"),
        ("name,email\n'',;\n", 2, "email"),
    ],
)
def test_nobody_is_invited_from_a_list_with_a_fault(content, line, field, invited, standin):
    ran = invited(content, "--domain", "u.example", "--json")
    assert ran.code == 1
    (problem,) = ran.error()["problems"]
    assert (problem["file"], problem["line"], problem["field"]) == ("students.csv", line, field)
    assert standin.asked == []


def test_an_empty_list_and_a_name_beside_a_list_are_refused(invited):
    assert "names 0 people" in invited("name,email\n").err
    assert "neither name nor address" in invited("Ann,a@u.example\nBo,b@u.example\n").err
    assert invited("Ann\n", "--name", "Ann").code == 2
