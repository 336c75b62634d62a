"""What measurements say about the simulated GPU.

`fit` fits the form of its model to a measured table and `score` says how far it is off: a check, no fitted kernel is
shipped. `energy` and `rates` turn the energy probes of a GPU (`probes`) into figures of its spec.
"""
