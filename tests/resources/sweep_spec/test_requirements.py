"""What a trial needs is checked before anything runs."""

import json

import pytest

from halving.errors import InvalidInput
from resources.sweep_spec import parse_spec, stored_spec
from resources.sweep_spec.requirements import quantity_bytes


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("512Mi", 512 << 20),
        ("32Gi", 32 << 30),
        ("1.5G", 1_500_000_000),
        ("1048576", 1 << 20),
        ("2Ti", 2 << 40),
    ],
)
def test_memory_is_a_quantity_as_kubernetes_takes_it(quantity, size, small):
    assert quantity_bytes(quantity) == size
    assert parse_spec(small(resources={"memory": quantity})).resources.memory == quantity


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            {"memory": "32GB"},
            r"resources.memory = '32GB' is not accepted: give bytes with a unit, for example 512Mi or 32Gi",
        ),
        ({"memory": 512}, r"resources.memory = .*512 is 512 bytes, less than 1Mi"),
        ({"gpu_type": "a100"}, r"resources.*gpu_type = 'a100' needs gpus of 1 or more"),
        (
            {"nodes": 2},
            (
                r"resources.nodes = 2 is not accepted: a trial has many nodes only in pods of its own, made "
                r"from an image"
            ),
        ),
        (
            {"nodes": 0},
            (
                r"resources.nodes = 0 is not accepted: give a whole number from 1 to 100000, or one for each "
                r"rung"
            ),
        ),
        (
            {"gpus": 8, "processes": 3},
            r"processes = 3 is not accepted with gpus = 8: .* give a number that divides 8",
        ),
        (
            {"gpus": {1: 1, 9: 2}, "processes": 1, "gpu_type": "a100", "nodes": {1: 1, 9: 0}},
            r"nodes is not accepted: 0 at the rung of 9",
        ),
        ({"gpus": {}}, r"resources.gpus is not accepted: it is empty"),
        ({"gpus": {"1": 1, 1: 2}}, r"resources.gpus is not accepted: the rung of 1 is given twice"),
        ({"gpus": {"soon": 1}}, r"resources.gpus is not accepted: the rung 'soon' is not a number of epochs"),
        ({"gpus": float("inf")}, r"resources.gpus = inf is not accepted"),
        (
            {"gpus": {1: 1, 4: 2}},
            (
                r"resources.gpus = \{1: 1, 4: 2\} is not accepted: there is no rung of 4 epochs; the rungs "
                r"are "
                r"1, 3, 9"
            ),
        ),
        (
            {"gpus": {3: 1, 9: 2}},
            r"resources.gpus = \{3: 1, 9: 2\} is not accepted: begin with 1, the first rung",
        ),
        (
            {"gpu_type": "a 100", "gpus": 1},
            r"resources.gpu_type = 'a 100' is not accepted: give a Kubernetes name",
        ),
        (
            {"memory": "1000000000Ti"},
            r"resources.memory = '1000000000Ti' is not accepted: 1000000000Ti is more than 1024Ti",
        ),
        ({"cpus": 1e-7}, r"resources.cpus = 1e-07 is not accepted"),
        (
            {"priority_class": "Foo_Bar"},
            r"resources.priority_class = 'Foo_Bar' is not accepted: give the name of an object in Kubernetes",
        ),
        ({"queue": "q" * 64}, r"resources.queue = .* is not accepted: give a queue's name of at most 63"),
        ({"start_timeout_seconds": 0}, r"resources.start_timeout_seconds = 0 is not accepted"),
        ({"gpu": 1}, r"resources.gpu = 1 is not accepted: there is no such field, did you mean 'gpus'"),
    ],
)
def test_a_wrong_need_is_refused_with_what_is_accepted(resources, message, small):
    with pytest.raises(InvalidInput, match=message):
        parse_spec(small(resources=resources))


def test_a_priority_class_may_be_a_name_with_dots(small):
    assert (
        parse_spec(small(resources={"priority_class": "team-a.high"})).resources.priority_class
        == "team-a.high"
    )


def test_an_image_may_come_from_a_registry_by_its_digest(small):
    assert parse_spec(small(image="registry.example:5000/team/train@sha256:00ff")).image


@pytest.mark.parametrize("image", ["", "has space", "UPPER/case"])
def test_a_wrong_image_is_refused(image, small):
    with pytest.raises(InvalidInput, match=r"image = .* is not accepted: give an image's name"):
        parse_spec(small(image=image))


def test_processes_are_one_for_each_gpu_unless_said_otherwise(small):
    def resources_of(**resources):
        return parse_spec(small(resources=resources, image="train")).resources.at(1)

    assert (
        resources_of().processes,
        resources_of(gpus=8).processes,
        resources_of(gpus=8, processes=1).processes,
    ) == (1, 8, 1)
    assert (resources_of(gpus=2, cpus=8).threads, resources_of(processes=4, cpus=2).threads) == (4, 1)
    assert (resources_of(gpus=4, nodes=2).world_size, resources_of(gpus=4, nodes=2).all_gpus) == (8, 8)


def test_what_is_said_of_a_rung_holds_for_attempts_that_train_towards_it_or_further(small):
    resources = parse_spec(
        small(resources={"gpus": {9: 8, "1": 1}, "processes": {1: 1, 3: 1, 9: 4}})
    ).resources
    assert [
        (resources.at(budget).gpus, resources.at(budget).processes) for budget in (1, 2, 3, 9, 27)
    ] == 3 * [(1, 1)] + 2 * [(8, 4)]
    assert resources.by_rung == {1: resources.at(1), 3: resources.at(1), 9: resources.at(9)}


def test_what_is_said_by_rung_may_begin_at_the_first_rung_or_at_1(small):
    later = {"asha": {"min_budget": 3, "max_budget": 9}}
    for first in (1, 3):
        assert (
            parse_spec(small(resources={"gpus": {first: 2, 9: 4}}, strategy=later)).resources.at(3).gpus == 2
        )
    with pytest.raises(
        InvalidInput,
        match=(
            r"resources.gpus = \{9: 4\} is not accepted: it says nothing of the first rung; begin with 1 "
            r"or 3"
        ),
    ):
        parse_spec(small(resources={"gpus": {9: 4}}, strategy=later))


def test_a_spec_by_rung_is_the_same_after_it_was_stored(small):
    spec = parse_spec(small(resources={"gpus": {1: 1, 3: 2, 9: 8}}))
    assert stored_spec(json.loads(spec.canonical_json())) == spec


def test_a_spec_without_gangs_has_the_digest_that_it_always_had(small):
    dumped = json.loads(parse_spec(small()).canonical_json())
    assert "elastic" not in dumped
    always = {
        "cpus": 1.0,
        "gpus": 0,
        "nodes": 1,
        "spot": False,
        "grace_seconds": 30.0,
        "start_timeout_seconds": 1800.0,
    }
    assert dumped["resources"] == always


def test_a_gang_may_shrink_to_what_elastic_says(small):
    spec = parse_spec(small(resources={"nodes": {1: 1, 9: 4}}, elastic={"min_nodes": 2}, image="train"))
    assert [spec.fewest_nodes(budget) for budget in (1, 9)] == [1, 2]
    assert parse_spec(small(resources={"nodes": 4}, image="train")).fewest_nodes(9) == 4


@pytest.mark.parametrize(
    ("nodes", "elastic", "message"),
    [
        (1, {}, r"elastic = {'min_nodes': 1} is not accepted: a trial on one node cannot shrink"),
        (2, {"min_nodes": 3}, r"elastic.min_nodes = 3 is not accepted: resources.nodes is 2 at the most"),
        (2, {"min_nodes": 0}, r"elastic.min_nodes = 0 is not accepted"),
    ],
)
def test_a_gang_that_cannot_shrink_so_far_is_refused(nodes, elastic, message, small):
    with pytest.raises(InvalidInput, match=message):
        parse_spec(small(resources={"nodes": nodes}, elastic=elastic, image="train"))
