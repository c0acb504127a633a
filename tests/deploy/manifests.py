"""The folders of deploy/."""

from tests.backends import CHECKOUT

DEPLOY = CHECKOUT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
