"""What a trial needs is checked before anything runs."""

import pytest

from halving.errors import InvalidInput
from resources.sweep_spec import parse_spec
from resources.sweep_spec.requirements import quantity_bytes


@pytest.mark.parametrize(
    ("quantity", "size"), [("512Mi", 512 << 20), ("32Gi", 32 << 30), ("1.5G", 1_500_000_000), ("1048576", 1 << 20), ("2Ti", 2 << 40)]
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
        ({"nodes": 2}, r"resources.*nodes = 2 is not accepted: a trial runs in one pod"),
        ({"gpu_type": "a 100", "gpus": 1}, r"resources.gpu_type = 'a 100' is not accepted: give a Kubernetes name"),
        (
            {"memory": "1000000000Ti"},
            r"resources.memory = '1000000000Ti' is not accepted: 1000000000Ti is more than 1024Ti",
        ),
        ({"cpus": 1e-7}, r"resources.cpus = 1e-07 is not accepted"),
        ({"priority_class": "Foo_Bar"}, r"resources.priority_class = 'Foo_Bar' is not accepted: give the name of an object in Kubernetes"),
        ({"queue": "q" * 64}, r"resources.queue = .* is not accepted: give a queue's name of at most 63"),
        ({"start_timeout_seconds": 0}, r"resources.start_timeout_seconds = 0 is not accepted"),
        ({"gpu": 1}, r"resources.gpu = 1 is not accepted: there is no such field, did you mean 'gpus'"),
    ],
)
def test_a_wrong_need_is_refused_with_what_is_accepted(resources, message, small):
    with pytest.raises(InvalidInput, match=message):
        parse_spec(small(resources=resources))


def test_a_priority_class_may_be_a_name_with_dots(small):
    assert parse_spec(small(resources={"priority_class": "team-a.high"})).resources.priority_class == "team-a.high"


def test_an_image_may_come_from_a_registry_by_its_digest(small):
    assert parse_spec(small(image="registry.example:5000/team/train@sha256:00ff")).image


@pytest.mark.parametrize("image", ["", "has space", "UPPER/case"])
def test_a_wrong_image_is_refused(image, small):
    with pytest.raises(InvalidInput, match=r"image = .* is not accepted: give an image's name"):
        parse_spec(small(image=image))
