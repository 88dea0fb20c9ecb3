"""A small Kubernetes API server on loopback, for tests: real HTTP, no etcd, no controllers.

Answers as a recorded kube-apiserver 1.36 does (``tests/data/apiserver``), as far as a controller
of widths gets to see it; what it cannot do it says with 501 instead of answering otherwise. Needs
the extra ``testing`` (jsonpatch).
"""

from autoscaler.testing_apiserver._access import ADMIN, Rule, User
from autoscaler.testing_apiserver._faults import Fault
from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._server import ApiServer
from autoscaler.testing_apiserver._status import ApiError
from autoscaler.testing_apiserver._store import Store

__all__ = ["ADMIN", "ApiError", "ApiServer", "Fault", "Resource", "Rule", "Store", "User"]
