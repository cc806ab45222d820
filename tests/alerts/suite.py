"""The alert rules of docs/monitoring.md: each fires when it should, and none does while all is well.

The rules are taken from the page itself, so what is tested is what people paste. `promtool test rules` judges them over made-up
measurements, whose names have to be those that the program gives.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIB = 1 << 30

# What is measured while all is well, a minute apart.
WELL = {
    'up{job="plinth", instance="a"}': "1x240",
    'plinth_available{instance="a"}': "1x240",
    'plinth_refusing{instance="a", cause="disk_full"}': "0x240",
    'plinth_commits_refused_total{instance="a", cause="disk_full"}': "7x240",
    'plinth_limited_by{instance="a", cause="workload"}': "1x240",
    'plinth_disk_free_bytes{instance="a"}': f"{50 * GIB}x240",
    'plinth_disk_kept_bytes{instance="a"}': f"{GIB}x240",
    'plinth_checkpoint_failures_total{instance="a"}': "2x240",
    'plinth_flush_failing{instance="a"}': "0x240",
    'plinth_damaged_blocks_total{instance="a"}': "0x240",
    'plinth_log_sync_seconds_bucket{instance="a", le="0.01"}': "0+60x240",
    'plinth_log_sync_seconds_bucket{instance="a", le="0.5"}': "0+60x240",
    'plinth_log_sync_seconds_bucket{instance="a", le="+Inf"}': "0+60x240",
    'plinth_commits_total{instance="a", outcome="committed"}': "0+100x240",
    'plinth_commits_total{instance="a", outcome="conflicted"}': "0+1x240",
    'plinth_server_connections_cut_off_total{instance="a"}': "3x240",
    'plinth_server_tls_failures_total{instance="a"}': "3x240",
    'plinth_is_leader{job="plinth", instance="a"}': "1x240",
    'plinth_is_leader{job="plinth", instance="b"}': "0x240",
    'plinth_peer_connected{job="plinth", instance="a", address="b"}': "1x240",
    'plinth_follower_lag_entries{instance="a", node="2"}': "5x240",
    'plinth_elections_total{instance="a"}': "3x240",
    'plinth_catching_up{instance="a"}': "0x240",
    'plinth_log_waits_for_room{instance="a"}': "0x240",
    'plinth_series_owner{job="plinth", instance="a"}': "0x240",
    'plinth_series_owner{job="plinth", instance="b"}': "1x240",
    'plinth_rules_evaluation_failures_total{instance="a"}': "2x240",
    'plinth_rules_unsaved_total{instance="a"}': "2x240",
    'plinth_rules_notification_errors_total{instance="a"}': "2x240",
    'plinth_backup_behind_seconds{instance="a", tag="default"}': "1x240",
    'plinth_backup_broken_total{instance="a", tag="default"}': "2x240",
    'plinth_backup_failing{instance="a", tag="default"}': "0x240",
    'plinth_backup_snapshot_timestamp_seconds{instance="a", tag="default"}': "0x240",
    'plinth_backup_snapshot_interval_seconds{instance="a", tag="default"}': "864000x240",
    'plinth_changes_lost{instance="a", stream="orders"}': "0x240",
    'plinth_changes_unacknowledged_seconds{instance="a", stream="orders"}': "2x240",
    'plinth_dr_first_behind_seconds{instance="a", tag="default"}': "1x240",
    'plinth_dr_first_lost{instance="a", tag="default"}': "0x240",
    'plinth_dr_second_behind_seconds{instance="b", tag="default"}': "1x240",
    'plinth_dr_second_agent{instance="b", tag="default"}': "1x240",
    'plinth_dr_second_failing{instance="b", tag="default"}': "0x240",
}

# For each alert what is measured instead; those that fire together with it are named behind.
UNWELL = {
    "PlinthAway": ({'up{job="plinth", instance="a"}': "0x240"}, []),
    "PlinthTakesNoCommits": ({'plinth_available{instance="a"}': "0x240"}, []),
    "PlinthRefusesCommits": ({'plinth_commits_refused_total{instance="a", cause="disk_full"}': "0+5x240"}, []),
    "PlinthHeldBack": ({'plinth_limited_by{instance="a", cause="log_server_write_queue"}': "1x240"}, []),
    "PlinthDiskLow": ({'plinth_disk_free_bytes{instance="a"}': f"{GIB + 1000}x240"}, []),
    "PlinthDiskFillsUp": ({'plinth_disk_free_bytes{instance="a"}': f"{50 * GIB}-{GIB // 20}x240"}, []),
    "PlinthCheckpointsFail": ({'plinth_checkpoint_failures_total{instance="a"}': "0+1x240"}, []),
    "PlinthBackupBehind": ({'plinth_backup_behind_seconds{instance="a", tag="default"}': "400x240"}, []),
    "PlinthBackupFailing": ({'plinth_backup_failing{instance="a", tag="default"}': "1x240"}, []),
    "PlinthBackupSnapshotOld": (
        {'plinth_backup_snapshot_interval_seconds{instance="a", tag="default"}': "60x240"},
        [],
    ),
    "PlinthBackupBroken": ({'plinth_backup_broken_total{instance="a", tag="default"}': "0+1x240"}, []),
    "PlinthStreamLost": ({'plinth_changes_lost{instance="a", stream="orders"}': "1x240"}, []),
    "PlinthStreamBehind": ({'plinth_changes_unacknowledged_seconds{instance="a", stream="orders"}': "0+60x240"}, []),
    "PlinthSecondSiteLost": ({'plinth_dr_first_lost{instance="a", tag="default"}': "1x240"}, []),
    "PlinthFirstSiteWaits": ({'plinth_dr_first_behind_seconds{instance="a", tag="default"}': "0+60x240"}, []),
    "PlinthSecondSiteBehind": ({'plinth_dr_second_behind_seconds{instance="b", tag="default"}': "400x240"}, []),
    "PlinthSecondSiteStopped": ({'plinth_dr_second_agent{instance="b", tag="default"}': "0x240"}, []),
    "PlinthSecondSiteFailing": ({'plinth_dr_second_failing{instance="b", tag="default"}': "1x240"}, []),
    "PlinthFlushStuck": ({'plinth_flush_failing{instance="a"}': "1x240"}, []),
    "PlinthDamaged": ({'plinth_damaged_blocks_total{instance="a"}': "1x240"}, []),
    "PlinthSlowSyncs": ({'plinth_log_sync_seconds_bucket{instance="a", le="0.01"}': "0x240"}, []),
    "PlinthConflicts": ({'plinth_commits_total{instance="a", outcome="conflicted"}': "0+200x240"}, []),
    "PlinthCutsOff": ({'plinth_server_connections_cut_off_total{instance="a"}': "0+1x240"}, []),
    "PlinthNobodyLeads": ({'plinth_is_leader{job="plinth", instance="a"}': "0x240"}, []),
    "PlinthNodeGone": ({'plinth_peer_connected{job="plinth", instance="a", address="b"}': "0x240"}, []),
    "PlinthFollowerBehind": ({'plinth_follower_lag_entries{instance="a", node="2"}': "0+200x240"}, []),
    "PlinthCatchesUpForLong": ({'plinth_catching_up{instance="a"}': "1x240"}, []),
    "PlinthLogWaitsForRoom": ({'plinth_log_waits_for_room{instance="a"}': "1x240"}, []),
    "PlinthSeriesNobodys": ({'plinth_series_owner{job="plinth", instance="b"}': "0x240"}, []),
    "PlinthRulesFail": ({'plinth_rules_evaluation_failures_total{instance="a"}': "0+1x240"}, []),
    "PlinthRulesUnsaved": ({'plinth_rules_unsaved_total{instance="a"}': "0+1x240"}, []),
    "PlinthAlertmanagerAway": ({'plinth_rules_notification_errors_total{instance="a"}': "0+1x240"}, []),
    "PlinthElections": ({'plinth_elections_total{instance="a"}': "0+1x240"}, []),
    "PlinthCertificates": ({'plinth_server_tls_failures_total{instance="a"}': "0+1x240"}, []),
}


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


def names_are_the_programs():
    """Whatever the rules ask for is measured by the program under that name."""
    sources = "".join(path.read_text() for path in (ROOT / "crates").rglob("src/**/*.rs"))
    asked = set(re.findall(r"plinth_[a-z_]+", "".join(WELL)))
    # The server's have their prefix from one place.
    named = lambda name: name.removesuffix("_bucket").removeprefix("plinth_server_").removeprefix("plinth_peer_").removeprefix("plinth_series_").removeprefix("plinth_rules_")
    missing = [name for name in asked if f'"{named(name)}"' not in sources]
    print(f"test the measurements have the program's names ... {'FAILED: ' + ', '.join(missing) if missing else 'ok'}")
    return not missing


def main():
    text = rules()
    names = re.findall(r"alert: (\w+)", text)
    results = [names_are_the_programs()]
    untested = set(names) ^ set(UNWELL)
    print(f"test each alert has a case ... {'FAILED: ' + ', '.join(sorted(untested)) if untested else 'ok'}")
    results.append(not untested)
    results.append(judge("nothing fires while all is well", case(WELL, [], names), text))
    for name, (values, others) in UNWELL.items():
        results.append(judge(f"{name} fires", case(WELL | values, [name, *others], names), text))
    failed = results.count(False)
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {len(results) - failed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
