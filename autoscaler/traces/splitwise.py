"""Splitwise and SageServe: ``request_id,…,arrival_timestamp,batch_size,prompt_size,token_size``, s.

https://github.com/Mutinifni/splitwise-sim
"""

from autoscaler.traces._format import Format

FORMATS = (Format("arrival_timestamp", "prompt_size", "token_size"),)
