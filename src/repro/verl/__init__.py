"""The verl engine: Ray, FSDP and vLLM, from one machine to a cluster, with the same method objects of an arm.

verl is neither edited nor copied. `trainer` extends verl's v1 trainer: the arm's samplers run between advantage and
actor update, as in the embedded engine. Plans are passed as the data set (`data`), objectives are verl's own losses
where these are identical (`loss`), and a run writes the same tables as the embedded engine (`record`). `plugin` is
loaded by every verl process; `platform_cpu`, `hf_rollout` and `text_agent` let verl's main loop train a small policy
on a CPU:

    python -m repro.verl --arm cost-aware --steps 3
"""
