"""The alert rules of docs/monitoring.md: each fires when it should, and none does while all is well.

The rules are taken from the page itself, so what is tested is what people paste. `promtool test rules` judges them over made-up
measurements (`cases.txt`), whose names have to be those that the program gives. `crates/rules/tests/alerts.rs` has the same cases
judged by Plinth's own rules.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cases():
    """By alert what is measured, as far as all is not well; `well` is what is measured otherwise."""
    found = {}
    for line in (ROOT / "tests/alerts/cases.txt").read_text().splitlines():
        if line.startswith("    "):
            series, samples = re.fullmatch(r"    (\S+{.*}) (\S+)", line).groups()
            found[name][series] = samples
        elif line and not line.startswith("#"):
            name = line
            assert name not in found, f"{name} is there twice"
            found[name] = {}
    return found


def rules():
    page = (ROOT / "docs/monitoring.md").read_text()
    found = re.search(r"```yaml\n(groups:.*?)```", page, re.S)
    assert found, "docs/monitoring.md has no rules"
    return found.group(1)


def case(values, firing, names):
    lines = ["  - interval: 1m", "    input_series:"]
    for series, samples in values.items():
        lines += [f"      - series: '{series}'", f"        values: '{samples}'"]
    lines += ["    promql_expr_test:"]
    for name in names:
        lines += [
            f"      - expr: count(ALERTS{{alertname=\"{name}\", alertstate=\"firing\"}}) or vector(0)",
            "        eval_time: 3h",
            f"        exp_samples: [{{labels: '{{}}', value: {int(name in firing)}}}]",
        ]
    return lines


def judge(title, lines, rules_text):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "rules.yml").write_text(rules_text)
        tests = ["rule_files: [rules.yml]", "evaluation_interval: 1m", "tests:", *lines]
        (directory / "tests.yml").write_text("\n".join(tests) + "\n")
        ran = subprocess.run(["promtool", "test", "rules", "tests.yml"], cwd=directory, capture_output=True, text=True)
    print(f"test {title} ... {'ok' if ran.returncode == 0 else 'FAILED'}")
    if ran.returncode != 0:
        print(ran.stdout + ran.stderr)
    return ran.returncode == 0


def names_are_the_programs(well):
    """Whatever the rules ask for is measured by the program under that name."""
    sources = "".join(path.read_text() for path in (ROOT / "crates").rglob("src/**/*.rs"))
    asked = set(re.findall(r"plinth_[a-z_]+", "".join(well)))
    # The server's have their prefix from one place.
    named = lambda name: name.removesuffix("_bucket").removeprefix("plinth_server_").removeprefix("plinth_peer_").removeprefix("plinth_series_").removeprefix("plinth_rules_")
    missing = [name for name in asked if f'"{named(name)}"' not in sources]
    print(f"test the measurements have the program's names ... {'FAILED: ' + ', '.join(missing) if missing else 'ok'}")
    return not missing


def main():
    text = rules()
    names = re.findall(r"alert: (\w+)", text)
    unwell = cases()
    well = unwell.pop("well")
    results = [names_are_the_programs(well)]
    untested = set(names) ^ set(unwell)
    print(f"test each alert has a case ... {'FAILED: ' + ', '.join(sorted(untested)) if untested else 'ok'}")
    results.append(not untested)
    results.append(judge("nothing fires while all is well", case(well, [], names), text))
    for name, values in unwell.items():
        results.append(judge(f"{name} fires", case(well | values, [name], names), text))
    failed = results.count(False)
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {len(results) - failed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
