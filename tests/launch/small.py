"""Options of the smallest run that has every phase but a warm start."""

SMALL = (
    "run.name=small", "sft=null", "train.steps=1", "train.tasks_per_step=2", "train.group_size=2",
    "agent.query=never", "agent.max_steps=1", "evaluation.tasks=2", "evaluation.temperatures=[0.0]",
    "env.n_train=6", "env.n_valid=6", "engine.processes=1", "rewards=[outcome,format]",
    "policy.model.hidden_size=16", "policy.model.layers=1", "policy.model.heads=1", "policy.model.kv_heads=1",
)  # fmt: skip
