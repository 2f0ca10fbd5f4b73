"""An experiment in a few lines of Python."""

from facade import run

result = run({"data": {"source": "digits", "clusters": "30:2"}, "training": {"rounds": 60}})
print("accuracy per cluster:", [round(a, 3) for a in result.summary["clusters"]])
print("chosen heads:", result.summary["choice"])
model = result.model(31)  # a torch module: what the last node of the minority deploys
print(model)
