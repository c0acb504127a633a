"""What a sweep needs at its largest is reported before anything runs."""

from resources.sweep_spec.needs import LargestNeed, largest_need, needs_in_words


def test_a_sweep_is_largest_when_all_of_its_trials_are_at_the_rung_that_needs_most(small_spec):
    by_rung = {"gpus": {1: 4, 9: 2}, "nodes": {1: 1, 9: 4}, "cpus": 8, "memory": "32Gi"}
    spec = small_spec(resources=by_rung, image="train", concurrency=3)
    assert largest_need(spec) == LargestNeed(
        trials=3, gpus=3 * 8, processes=3 * 8, nodes=12, cpus=96, memory=12 << 35
    )
    assert needs_in_words(spec) == [
        (
            "a trial has 4 processes and 4 GPUs; from the rung of 9 epochs on 2 processes and 2 GPUs on each "
            "of 4 nodes"
        ),
        "at its largest: 24 GPUs, 24 processes, 12 nodes, 96 cores, 384Gi of memory for 3 trials at a time",
    ]


def test_a_sweep_that_asks_for_nothing_needs_a_process_and_a_core_for_each_trial(small_spec):
    assert needs_in_words(small_spec(concurrency=0)) == [
        "a trial has 1 process",
        "at its largest: 1 process, 1 core for each trial, of which as many run as there is room for",
    ]


def test_a_sweep_of_gangs_that_may_shrink_says_to_what(small_spec):
    spec = small_spec(resources={"processes": 2, "nodes": 4}, image="train", elastic={"min_nodes": 2})
    assert (
        needs_in_words(spec)[0] == "a trial has 2 processes on each of 4 nodes, 2 of which suffice to go on"
    )


def test_a_sweep_whose_gangs_a_queue_admits_whole_does_not_say_that_they_may_shrink(small_spec):
    spec = small_spec(
        resources={"processes": 2, "nodes": 4, "queue": "q"}, image="train", elastic={"min_nodes": 2}
    )
    assert needs_in_words(spec)[0] == "a trial has 2 processes on each of 4 nodes"
