"""A GPT in a pipeline: torchrun --nproc-per-node 2 gpt_pipeline.py"""

import torch
import torch.distributed as dist

import pipewright as pw
from gpt import Gpt, loss_fn

MICRO_BATCH, SEQUENCE, STEPS = 4, 64, 10

dist.init_process_group("gloo")
torch.manual_seed(0)
model = Gpt(vocabulary=256, length=SEQUENCE, width=128, layers=4)
tokens = torch.randint(0, 256, (MICRO_BATCH, SEQUENCE))

trace = pw.trace(model, (tokens,), loss=loss_fn, target=tokens)
ranks = dist.get_world_size()
plan = trace.plan(cluster=pw.cluster(), ranks=ranks, stages=ranks, micro_batches=8, schedule="automatic")
pipeline = plan.pipeline(loss_fn=loss_fn)
optimizer = torch.optim.AdamW(pipeline.parameters(), lr=1e-3)

text = torch.randint(0, 256, (plan.mini_batch, SEQUENCE + 1))
with pw.record(pipeline, "trace.json"):
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = pipeline.step(text[:, :-1], target=text[:, 1:])
        optimizer.step()
        if loss is not None:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

state = pipeline.state_dict()
if dist.get_rank() == 0:
    print(plan)
    plan.save("plan.json")
    torch.save(state, "gpt.pt")
dist.destroy_process_group()
