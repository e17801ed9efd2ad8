"""The verl engine: Ray, FSDP and vLLM, from one machine to a cluster, with the very objects that an arm is made of.

Nothing of verl is edited or copied. `trainer` extends verl's v1 trainer: between advantage and actor update the arm's
samplers choose, as in the embedded engine. Plans come in through the data set (`data`), objectives are verl's own
losses where they are the same function (`loss`), and a run leaves the tables that the embedded engine leaves
(`record`). `plugin` is loaded by every process of verl; `platform_cpu`, `hf_rollout` and `text_agent` let verl's own
main loop train a small policy on a CPU:

    python -m repro.verl --arm cost-aware --steps 3
"""
