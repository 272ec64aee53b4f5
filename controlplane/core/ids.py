"""Names for ids and names, so that two of them cannot be swapped by accident.

Surrogate ids are integers given by the database; a Workload's id is a UUID as text, because a
client may choose it before the plane has heard of it.
"""

from typing import NewType

PoolId = NewType("PoolId", int)
ClusterId = NewType("ClusterId", int)
NodeId = NewType("NodeId", int)
QueueId = NewType("QueueId", int)
WorkloadId = NewType("WorkloadId", str)
FlavorName = NewType("FlavorName", str)
AttemptNumber = NewType("AttemptNumber", int)
