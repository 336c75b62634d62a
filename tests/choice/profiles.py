"""Small profiles as columns, as the contract of the profile table names them."""


def profile(rows, kind="simulated", settings=("core_mhz", "mem_mhz")) -> dict:
    """Columns from rows (target, launches, core, mem, time, energy, *more) with defaults for the rest.

    more: a dict of other columns of that row, such as replicate_group, n, verdict, study.
    """
    names = ("target", "launches_per_iteration", "core_mhz", "mem_mhz", "time_s", "energy_j")
    columns = {name: [] for name in (*names, "study", "n", "verdict", "is_baseline", "replicate_group", *settings)}
    columns |= {"time_se_s": [], "energy_se_j": []}
    for row in rows:
        values = dict(zip(names, row), study="kernel", n=1, verdict="ok", replicate_group=None)
        values["is_baseline"] = row[2] is None and row[3] is None
        values.update(row[6] if len(row) > 6 else {})
        for name, column in columns.items():
            column.append(values.get(name))
    gpu = {"kind": kind, "name": "A GPU", "slug": "a-gpu"}
    metadata = {"schema": "kernel-dvfs/profile/1", "gpu": gpu, "workload": {"name": "w"}, "settings": list(settings)}
    return {**columns, "metadata": metadata}
