"""Pictures of shared links."""

PNG = b"\x89PNG\r\n\x1a\n"


def size_of(png):
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_a_board_and_a_submission_have_a_card_that_their_pages_name(
    digits_submission, submit, client
):
    for address in ("/benchmarks/digits", f"/submissions/{submit(digits_submission).json()['id']}"):
        page, card = client.get(address).text, client.get(f"{address}/card.png")
        assert f'{address}/card.png">' in page
        assert 'name="twitter:card" content="summary_large_image"' in page
        assert (card.status_code, card.headers["content-type"]) == (200, "image/png")
        assert card.content.startswith(PNG)
        assert size_of(card.content) == (1200, 630)
        known = {"If-None-Match": card.headers["etag"]}
        assert client.get(f"{address}/card.png", headers=known).status_code == 304
    assert client.get("/submissions/nothing/card.png").status_code == 404
    assert 'content="summary"' in client.get("/workers").text
