from rules.messages import ANY_QUEUE, queue_of


def test_each_hardware_class_has_its_queue_beside_that_of_all() -> None:
    assert queue_of("cpu-x86_64") == "replay.cpu-x86_64"
    assert ANY_QUEUE == "replay.any"
