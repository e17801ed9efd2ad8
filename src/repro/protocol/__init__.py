"""What every engine owes the others: an arm that runs on one runs on all, and their runs are of one kind.

An engine generates, scores and updates. It brings

    a subclass of `collect.Drawn`                 a batch of groups in its own tensors
    a function from planned groups to that        generation, verifying, `Method.rewards`
    a `Rollouts` of such a batch                  what the samplers read
    an update on mini-batches of `Rollouts`       the objective's token losses, or the trainer's own

and takes everything else from here, in the order in which a step needs it:

    running_arm   the arm in a run: plan, rounds, memory, samplers, mini-batches, the state for a checkpoint
    streams       its random numbers, by seed, step and purpose
    ledger        what every pass costs
    log           the rows of the tables, `saved` their types in a file
    profile       K samples of every query, for arms whose plans need them

docs/engines.md writes one down in a hundred lines.
"""
