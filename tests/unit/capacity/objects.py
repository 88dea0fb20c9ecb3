"""Nodes, Pods and queues as an API server lists them."""

GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"


def a_node(
    name, gpus, *, labels=None, ready="True", taints=(), unschedulable=False, deleting=False
):
    metadata = {"name": name, "labels": labels or {}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-30T15:00:00Z"
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    return {
        "metadata": metadata,
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "allocatable": {"cpu": "95500m", "memory": "1900Gi", GPU: str(gpus)},
            "conditions": conditions,
        },
    }


def a_pod(name, gpus, *, node="", phase="Running", labels=None, resource=GPU, **spec):
    asked = {"cpu": "500m", **({resource: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "containers": [{"name": "engine", "resources": {"requests": asked, "limits": asked}}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": phase},
    }


def a_local_queue(name="team", cluster="pool", **spec):
    return {"metadata": {"name": name}, "spec": {"clusterQueue": cluster, **spec}}


def a_cluster_queue(flavors, *, active="True", key="flavorsUsage", **spec):
    """``flavors``: name to (nominal, used), or (nominal, used, borrowing limit)."""
    quotas, used = [], []
    for name, (nominal, taken, *borrowing) in flavors.items():
        entry = {"name": GPU, "nominalQuota": str(nominal)}
        if borrowing:
            entry["borrowingLimit"] = str(borrowing[0])
        cpu = {"name": "cpu", "nominalQuota": "1k"}
        quotas.append({"name": name, "resources": [cpu, entry]})
        used.append({"name": name, "resources": [{"name": GPU, "total": str(taken)}]})
    return {
        "metadata": {"name": "pool"},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu", GPU], "flavors": quotas}], **spec},
        "status": {
            key: used,
            "conditions": [{"type": "Active", "status": active, "reason": "Ready"}],
        },
    }
