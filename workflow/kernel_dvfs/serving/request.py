"""One request on its way through the cluster."""


class Request:
    """Lengths in tokens, moments in s on the simulation's clock.

    kind: index of its true class; predicted: of the class it is taken for. stop_at: tokens after which the instance
    hands it back (a prediction shown wrong), None: never. generated is kept up by the instance only when the request
    leaves it; `tokens_out` of a finished request equals output.
    """

    __slots__ = (
        "arrival_s",
        "deadline_s",
        "finish_s",
        "first_s",
        "generated",
        "input",
        "kind",
        "last_s",
        "number",
        "output",
        "predicted",
        "prefilled",
        "rejected",
        "stop_at",
    )

    def __init__(self, number, arrival_s, input_tokens, output_tokens, kind=0, predicted=0, slo_s=2.0):
        self.number = number
        self.arrival_s = arrival_s
        self.input = input_tokens
        self.output = output_tokens
        self.kind = kind
        self.predicted = predicted
        self.deadline_s = arrival_s + slo_s
        self.stop_at = None
        self.prefilled = 0
        self.generated = 0
        self.first_s = None
        self.last_s = None
        self.finish_s = None
        self.rejected = False

    @property
    def started(self) -> bool:
        """Whether any work has been done on it."""
        return self.prefilled > 0
