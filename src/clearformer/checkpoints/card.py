"""`README.md` of an exported folder: which classes read it, how it is asked, what was done to make it one of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

from clearformer.checkpoints.metadata import Metadata

AUTO = {  # what a class's name ends in, and the one that finds it
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
}
ASKED = {
    "AutoModelForSeq2SeqLM": 'ids = model.generate(**tokenizer("{text}", return_tensors="pt"))\n'
    "print(tokenizer.decode(ids[0], skip_special_tokens=True))",
    "AutoModelForCausalLM": 'ids = model.generate(**tokenizer("Once", return_tensors="pt"), max_new_tokens=40)\n'
    "print(tokenizer.decode(ids[0], skip_special_tokens=True))",
    "AutoModelForSequenceClassification": 'logits = model(**tokenizer("A text.", return_tensors="pt")).logits\n'
    "print(model.config.id2label[int(logits.argmax())])",
    "AutoModelForTokenClassification": 'logits = model(**tokenizer("A text.", return_tensors="pt")).logits[0]\n'
    "print([model.config.id2label[int(row.argmax())] for row in logits])",
    "AutoModelForQuestionAnswering": 'found = model(**tokenizer("Who?", "It was she.", return_tensors="pt"))\n'
    "print(found.start_logits.argmax(), found.end_logits.argmax())",
    "AutoModelForMaskedLM": 'logits = model(**tokenizer("A {mask}.", return_tensors="pt")).logits',
    "AutoModelForImageClassification": 'logits = model(**processor(image, return_tensors="pt")).logits\n'
    "print(model.config.id2label[int(logits.argmax())])",
    "AutoModel": 'states = model(**tokenizer("A text.", return_tensors="pt")).last_hidden_state',
}


def auto_class(architecture: str) -> str:
    """The class of transformers that finds a model of this architecture."""
    return next((auto for end, auto in AUTO.items() if architecture.endswith(end)), "AutoModel")


def card(config: Mapping[str, Any], metadata: Metadata, notes: Sequence[str]) -> str:
    architecture = config["architectures"][0]
    auto = auto_class(architecture)
    reader = "AutoImageProcessor" if metadata.image is not None else "AutoTokenizer"
    name = "processor" if metadata.image is not None else "tokenizer"
    text = "How are you?"
    if len(metadata.to or ()) > 1:
        text = f">>{(metadata.to or ())[0]}<< {text}"
    asked = ASKED[auto].replace("{text}", text).replace("{mask}", "<mask>")
    lines = [
        f"# {architecture}",
        "",
        f"A model of the family `{config['model_type']}`, written by Clearformer (`convert --to huggingface`).",
        "",
        "```python",
        f"from transformers import {auto}, {reader}",
        "",
        f'{name}, model = {reader}.from_pretrained("."), {auto}.from_pretrained(".")',
        *asked.split("\n"),
        "```",
        "",
    ]
    if metadata.longest is not None:
        lines += [f"It was trained on inputs of at most {metadata.longest} tokens.", ""]
    if len(metadata.to or ()) > 1:
        tags = ", ".join(f"`>>{language}<<`" for language in metadata.to or ())
        lines += [f"A source begins with the tag of the language to write: {tags}.", ""]
    if metadata.task == "embed" and metadata.pool is not None:
        unit = ", of length one" if metadata.normalise else ""
        lines += [
            f"A text's vector is the {metadata.pool} of its states{unit}; sentence-transformers reads that by itself.",
            "",
        ]
    if notes:
        lines += ["To be a member of that family it was rewritten, with the same answers:", ""]
        lines += [f"- {note}" for note in notes] + [""]
    return "\n".join(lines)
