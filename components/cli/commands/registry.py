"""The commands `cliptune promote`, `history`, `lineage`, `rollback`, `export`, `serve` and `drift`: of champions."""

from __future__ import annotations

import os
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from components.cli.tables import PIPE_WIDTH, AsJson, Device, encoder_names, print_json, print_rows, say
from components.core.system.errors import InputError
from components.core.system.project import from_root, in_project, require_project

if TYPE_CHECKING:
    from components.registry.decision import Decision


@in_project
def promote(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the decision; write nothing.")] = False,
    challenger: Annotated[
        bool, typer.Option("--challenger", help="Set only the alias challenger; `promote` can then make it champion.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the best candidate with the rules of `promote`, and make it champion if it passes.

    A refusal is not an error: the exit code is 0, and the reasons are printed and stored.

    Examples: cliptune promote; cliptune promote --dry-run; cliptune promote --challenger
    """
    from components.core.settings import load_settings

    settings = load_settings()
    quiet_mlflow()
    from components.registry.promotion import promote as judge_and_promote

    decision = judge_and_promote(settings, dry_run, challenger=challenger)
    _print_decision(decision, decision.outcome, "would be " if dry_run else "", as_json)


@in_project
def history(as_json: AsJson = False) -> None:
    """List all decisions, oldest first.

    Example: cliptune history
    """
    from components.registry.decision import history as decisions

    recorded = decisions()
    if not recorded:
        require_project()
    if as_json:
        print_json([decision.model_dump(mode="json") for decision in recorded])
        return
    if not recorded:
        say("no decisions yet: run `cliptune promote`")
        return
    rows = []
    for decision in recorded:
        failed = "; ".join(rule.name for rule in decision.rules if not rule.passed)
        rows.append(
            (decision.time[:19], decision.outcome, decision.encoder, decision.against, decision.version, failed)
        )
    print_rows(("time", "outcome", "encoder", "against", "version", "reason"), rows)


@in_project
def lineage(
    of: Annotated[str, typer.Argument(help="A version, run id, commit, or hash of weights, data or dvc.lock.")],
    as_json: AsJson = False,
) -> None:
    """List the versions, runs, commits and data that are tied to one of them.

    Examples: cliptune lineage 3; cliptune lineage 4f2a9c1
    """
    quiet_mlflow()
    from components.core.settings import load_settings
    from components.registry.evidence import find_links

    model = load_settings().promote.model
    links = find_links(model, of)
    if as_json:
        print_json([asdict(link) for link in links])
        return
    for link in links:
        title = f"{model} version {link.version} {' '.join(link.aliases)}".rstrip()
        print_rows(("tag", "value"), sorted(link.tags.items()), title)
    if not links:
        say(f"no version of {model} is tied to '{of}'")


@in_project
def rollback(as_json: AsJson = False) -> None:
    """Make the previous champion champion again; a second rollback undoes the first.

    Example: cliptune rollback
    """
    from components.core.settings import load_settings
    from components.registry.decision import now

    settings, began = load_settings(), now()
    quiet_mlflow()
    from components.registry.champion import rollback as roll_back

    decision = roll_back(settings, began=began)
    _print_decision(decision, f"rolled back from version {decision.previous_version}", "", as_json)


@in_project
def export(
    encoder: Annotated[str, typer.Option(help="A folder, a run, text-encoder@champion, or open_clip's name:tag.")],
    format_: Annotated[
        str, typer.Option("--format", help="open_clip, huggingface, sentence_transformers, vllm, onnx, onnx_int8.")
    ],
    output: Annotated[str, typer.Option(help="A new folder, or s3://bucket/prefix.")],
    device: Device = "auto",
) -> None:
    """Write an encoder as a folder that another library reads, loaded back with that library and compared first.

    Examples: cliptune export --encoder text-encoder@champion --format open_clip --output exported;
    cliptune export --encoder ViT-B-32-quickgelu:openai --format sentence_transformers --output exported;
    cliptune export --encoder paraclip --format onnx_int8 --output exported
    """
    from components.registry.encoder_names import name_from_root
    from components.registry.formats import S3_URL, check_export

    name, place = name_from_root(encoder), output if output.startswith(S3_URL) else str(from_root(Path(output)))
    check_export(name, format_, place)
    quiet_mlflow()
    from components.registry.export import export_encoder

    say(export_encoder(name, format_, place, device))


def _print_decision(decision: Decision, outcome: str, mood: str, as_json: bool) -> None:
    if as_json:
        print_json(decision.model_dump(mode="json"))
        return
    from components.registry.decision import LATEST, RECORDS, latest

    if decision.rules:
        rows = [
            (rule.name, ("pass", "green") if rule.passed else ("fail", "red"), rule.reason) for rule in decision.rules
        ]
        title = f"'{decision.encoder}' against {decision.against}"
        print_rows(("rule", "", "reason"), rows, title, widest=PIPE_WIDTH)
    if decision.look > 1:
        from components.registry.gate import level_of

        say(f"look {decision.look} at this test set: the gain's interval is of {level_of(decision.look):.2%}, not 95%")
    if decision.advice:
        say(f"try next: {decision.advice}; docs/flat_or_refused.md")
    for other in decision.passed_over:
        say(f"passed over: {other.name}: {other.reason}")
    for other in decision.behind:
        say(f"behind it: {other.name}: {other.reason}")
    version = f" (version {decision.version} of {decision.model})" if decision.version else ""
    place = f"record: {RECORDS / LATEST}.md" if latest() == decision else "nothing written"
    say(f"{mood}{outcome}: {decision.encoder}{version}; {place}")


def quiet_mlflow() -> None:
    """Keep MLflow's progress bars and notes out of the output."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")


@in_project
def serve(
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            help="text-encoder@champion (the default), text-encoder/3, a folder (models/paraclip) or a run id. A "
            "second one, the challenger, answers the requests that name it."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other addresses than this machine's need CLIPTUNE_SERVE_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any free port.", min=0, max=65535)] = 8080,
    poll_seconds: Annotated[
        float, typer.Option(help="Seconds between two checks of the alias for a new version.", min=0.1)
    ] = 5,
    allow_tower_change: Annotated[
        bool, typer.Option("--allow-tower-change", help="Also load versions with another image tower.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Texts in a batch.", min=1)] = 64,
    max_texts: Annotated[int, typer.Option(help="Maximum number of texts in a request.", min=1)] = 256,
    max_queue: Annotated[
        int, typer.Option(help="Maximum number of waiting texts; further requests get status 429.")
    ] = 1024,
    cache: Annotated[int, typer.Option(help="Number of texts whose vectors are cached; 0 for none.", min=0)] = 4096,
    device: Device = "auto",
    precision: Annotated[
        Literal["fp32", "bf16", "int8"],
        typer.Option(help="Number format of the text tower; fewer bits are faster, and vectors differ slightly."),
    ] = "fp32",
    exclude: Annotated[
        bool, typer.Option("--exclude", help="Texts such as `a street -people` or `... without people` exclude.")
    ] = False,
) -> None:
    """Serve POST /v1/embeddings, compatible with OpenAI's API, with the current champion.

    Clients on other machines need the token in the environment variable CLIPTUNE_SERVE_TOKEN. See docs/serve.md.

    Examples: cliptune serve; cliptune serve --encoder models/paraclip --port 9000; cliptune serve --exclude;
    cliptune serve --encoder text-encoder@champion --encoder text-encoder@challenger;
    CLIPTUNE_SERVE_TOKEN=$(openssl rand -hex 32) cliptune serve --host 0.0.0.0
    """
    from components.serving.server.address import ServingLimits, bind, read_tokens

    tokens = read_tokens(host, os.environ)
    limits = ServingLimits(batch=batch_size, texts=max_texts, queue=max_queue)
    names = encoder_names(encoder or ["text-encoder@champion"])
    if len(names) > 2:
        raise InputError("a server has one encoder and a challenger: give --encoder at most twice")
    with bind(host, port) as place:
        quiet_mlflow()
        from components.serving.server.serve import serve as run
        from components.serving.server.served import Loading

        loading = Loading(cache, precision, device, exclude)
        run(names, place, tokens, limits, loading, any_tower=allow_tower_change, every=poll_seconds)


@in_project
def drift(
    log: Annotated[
        Path, typer.Argument(help="One query on each line, or column `query` of a TSV, CSV, JSONL or Parquet file.")
    ],
    encoder: Annotated[str, typer.Option(help="Named as in `cliptune evaluate`.")] = "text-encoder@champion",
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare a log of queries with the texts that the encoder was trained and tested on.

    A query is unlike them if it is further from its nearest one than 95% of them are from those of other pictures. If
    surely more than twice as many queries are, new captions and test queries are due, and a new champion with them. The
    log may be looked at every week.

    Examples: cliptune drift last_month.txt; cliptune drift data/shop/queries.tsv --encoder models/paraclip --json
    """
    (name,) = encoder_names([encoder])
    from components.encoders.adapter.encoder import Encoder
    from components.evaluation.scoring.drift import drift as run
    from components.evaluation.scoring.drift import known_texts, read_log
    from components.registry.encoder_lookup import find_encoder

    queries, known = read_log(from_root(log)), known_texts()
    loaded = find_encoder(name, device=device).encoder
    if not isinstance(loaded, Encoder):
        raise InputError(f"--encoder '{encoder}' is not an image-text encoder")
    found = run(loaded, queries, known)
    if as_json:
        spans = {"unlike": astuple(found.unlike), "more": astuple(found.more)}
        print_json(asdict(found) | spans | {"is_due": found.is_due})
        return
    rows = ((query, nearest, f"{cosine:.2f}") for query, nearest, cosine in found.most_unlike)
    print_rows(("query", "nearest known text", "cosine"), rows, "Least like the known texts", numbers=("cosine",))
    share, low, high = (f"{value:.0%}" for value in astuple(found.unlike))
    say(f"{found.queries:,} distinct queries against {found.known:,} known texts")
    say("one word: {:.0%} of the queries, {:.0%} of the known texts".format(*found.one_word))
    due = "new captions and test queries are due" if found.is_due else "the champion still fits"
    say(f"unlike all known texts: {share} [{low}, {high}], usual is 5%: {due}")
