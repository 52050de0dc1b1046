#!/usr/bin/env python3
"""Writes the Grafana dashboard of Slackline: monitoring/grafana/slackline.json.

usage: monitoring/dashboard.py [--check | --queries]

--check changes nothing and exits with 1 when the file is not what would be written. --queries prints each panel's queries
as JSON: [title, [query, ...]], with $job for the variable.
"""

import json
import os
import sys

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, SortOrder, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh, VariableSort
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

ROOT = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(ROOT, "grafana", "slackline.json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 24, 8

JOB = 'slackline_job=~"$job"'


def q(query, legend="{{process}}"):
    """JOB in a query stands for the matcher of the job."""
    return query.replace("JOB", JOB), legend


def p95(series, by="slackline_job", legend="{{slackline_job}} p95"):
    return q(f"histogram_quantile(0.95, sum by ({by}, le) (rate({series}_bucket{{JOB}}[$__rate_interval])))", legend)


def p50(series, by="slackline_job", legend="{{slackline_job}} p50"):
    return q(f"histogram_quantile(0.5, sum by ({by}, le) (rate({series}_bucket{{JOB}}[$__rate_interval])))", legend)


def rate(series, by="process", legend="{{process}}", matchers=""):
    return q(f"sum by (slackline_job, {by}) (rate({series}{{JOB{matchers}}}[$__rate_interval]))", legend)


# (title, unit, what it shows, queries); of each row.
ROWS = [
    ("Training", [
        ("Loss", "short", "Mean loss on training images since the last report; on test images at the last evaluation.",
         [q("slackline_scheduler_train_loss{JOB}", "{{slackline_job}} training"),
          q("slackline_scheduler_test_loss{JOB}", "{{slackline_job}} test")]),
        ("Learning rate", "short", "As the last push names it, else by the schedule for a step of one batch.",
         [q("slackline_scheduler_learning_rate{JOB}", "{{slackline_job}}")]),
        ("Accuracy", "percentunit", "On training images since the last report; on test images at the last evaluation, of jobs that find "
         "objects mean average precision.",
         [q("slackline_scheduler_train_accuracy_ratio{JOB}", "{{slackline_job}} training"),
          q("slackline_scheduler_test_accuracy_ratio{JOB}", "{{slackline_job}} test")]),
        ("Metrics of scripts", "short", "Figures that scripts report under names of their own: of training, and of the last evaluation.",
         [q("slackline_scheduler_train_metric{JOB}", "{{slackline_job}} training {{name}}"),
          q("slackline_scheduler_test_metric{JOB}", "{{slackline_job}} test {{name}}")]),
        ("Samples a second", "short", "Training images of all workers.",
         [q("slackline:samples:rate1m{JOB}", "{{slackline_job}}")]),
        ("Samples a second, by worker", "short", "A flat line is a worker that stands still.",
         [rate("slackline_worker_samples_total")]),
        ("Done", "percentunit", "Images of all epochs that are done.",
         [q("slackline_scheduler_done_samples{JOB} / (slackline_scheduler_wanted_samples{JOB} > 0)",
            "{{slackline_job}}")]),
        ("Gradient norm", "short", "The largest since the last report, and that of each worker's last push.",
         [q("slackline_scheduler_gradient_norm_max{JOB}", "{{slackline_job}} largest"),
          q("slackline_worker_gradient_norm{JOB}")]),
        ("Time of a worker", "percentunit", "The shares in which workers wait for servers and for data; the rest computes.",
         [q("slackline:worker_wait:ratio5m{JOB}", "{{process}} servers"),
          q("slackline:worker_data_wait:ratio5m{JOB}", "{{process}} data")]),
        ("Time of a step", "s", "Computing, and waiting for servers.",
         [p95("slackline_worker_compute_seconds", legend="{{slackline_job}} computing, p95"),
          p95("slackline_worker_wait_seconds", legend="{{slackline_job}} waiting, p95")]),
        ("Evaluations", "s", "How long evaluations took, on average.",
         [q("sum by (slackline_job) (slackline_worker_evaluation_seconds_sum{JOB})"
            " / sum by (slackline_job) (slackline_worker_evaluation_seconds_count{JOB} > 0)", "{{slackline_job}}")]),
    ]),
    ("Consistency", [
        ("Slack", "short", "How far the fastest live worker was ahead of the slowest, and how far it may be (ssp).",
         [q("slackline_scheduler_slack_clocks{JOB}", "{{slackline_job}}"),
          q("slackline_scheduler_staleness_bound_clocks{JOB} > 0", "{{slackline_job}} bound")]),
        ("Slack, as part of the bound", "percentunit", "1: the fastest worker waits for the slowest (ssp).",
         [q("slackline:slack_bound:ratio{JOB}", "{{slackline_job}}")]),
        ("Clocks behind the fastest", "short", "Of live workers; at most 64 are named.",
         [q("slackline_scheduler_worker_clock_steps{JOB}"
            " - on (slackline_job) group_left () max by (slackline_job) (slackline_scheduler_worker_clock_steps{JOB})",
            "{{worker}}")]),
        ("Staleness of pushes", "short", "Versions that were applied between a pull and the push computed from it.",
         [p50("slackline_ps_staleness_versions"), q("slackline:staleness_versions:p95_5m{JOB}", "{{slackline_job}} p95")]),
        ("Awaited workers", "s", "Seconds that pulls of others waited for this worker's push, a second, over all shards.",
         [q("slackline:awaited:rate5m{JOB}", "{{worker}}")]),
        ("Wait of a pull", "s", "From its arrival at a shard until it was served.",
         [p50("slackline_ps_pull_wait_seconds"), q("slackline:pull_wait_seconds:p95_5m{JOB}", "{{slackline_job}} p95")]),
        ("Waiting now", "short", "Pulls that wait, and pushes that are held for their step.",
         [q("slackline_ps_waiting_pulls{JOB}", "{{process}} pulls"), q("slackline_ps_held_pushes{JOB}", "{{process}} pushes")]),
        ("Discarded", "percentunit", "Share of final answers.",
         [q("slackline:pushes_discarded:ratio5m{JOB}", "{{slackline_job}}")]),
        ("Discarded, by reason", "short", "Sub-pushes a second.",
         [rate("slackline_ps_pushes_discarded_total", "reason", "{{reason}}")]),
        ("Refused", "short", "Items a second that made no sense, or came too early.",
         [rate("slackline_ps_pushes_refused_total", "process, code", "{{process}} {{code}}")]),
    ]),
    ("Servers", [
        ("Updates a second", "short", "Sub-pushes applied.", [q("slackline:pushes_applied:rate1m{JOB}", "{{slackline_job}}")]),
        ("Time of an update", "s", "One optimizer step on one shard.",
         [p50("slackline_ps_apply_seconds"), q("slackline:apply_seconds:p95_5m{JOB}", "{{slackline_job}} p95")]),
        ("Time of a push", "s", "As workers see it: from the commit until all shards had answered, and until the weights were there.",
         [q("slackline:push_seconds:p95_5m{JOB}", "{{slackline_job}} answers, p95"),
          p95("slackline_worker_pull_seconds", legend="{{slackline_job}} weights, p95")]),
        ("Bytes received", "Bps", "Frames; what lies in shared memory does not count.", [rate("slackline_ps_received_bytes_total")]),
        ("Bytes sent", "Bps", "Frames; what lies in shared memory does not count.", [rate("slackline_ps_sent_bytes_total")]),
        ("Values pushed and pulled", "Bps", "By workers, through shared memory, too.",
         [rate("slackline_worker_pushed_bytes_total", legend="{{process}} pushed"),
          rate("slackline_worker_pulled_bytes_total", legend="{{process}} pulled")]),
        ("Shards", "bytes", "Weights and the optimizer's arrays that a server holds.",
         [q("slackline_ps_weight_bytes{JOB}", "{{process}} weights"), q("slackline_ps_optimizer_bytes{JOB}", "{{process}} optimizer")]),
        ("Memory", "bytes", "Resident, of every process.", [q("process_resident_memory_bytes{JOB}")]),
        ("Staging", "percentunit", "Of what may be reserved for pushes that are not applied yet.",
         [q("slackline:staging:ratio{JOB}")]),
        ("Processor", "short", "Cores in use, of every process.", [rate("process_cpu_seconds_total")]),
        ("Open files", "percentunit", "Of those allowed.", [q("process_open_fds{JOB} / process_max_fds{JOB}")]),
        ("Versions kept", "short", "For readers, and for delay compensation.",
         [q("slackline_ps_pinned_versions{JOB}", "{{process}} readers"),
          q("slackline_ps_reference_versions{JOB}", "{{process}} compensation")]),
    ]),
    ("Durability", [
        ("Age of snapshots", "s", "Of the oldest of a server's newest snapshots, and how often one is to be made.",
         [q("slackline:snapshot_age:seconds{JOB}"), q("slackline_ps_snapshot_interval_seconds{JOB}", "{{process}} interval")]),
        ("Time of a snapshot", "s", "To write one shard.", [p95("slackline_ps_snapshot_seconds")]),
        ("Size of snapshots", "bytes", "The newest of all shards.", [q("slackline_ps_snapshot_bytes{JOB}")]),
        ("Snapshots and checkpoints that failed", "short", "In the last hour.",
         [q("sum by (slackline_job, process) (increase(slackline_ps_snapshots_failed_total{JOB}[1h]))", "{{process}} snapshots"),
          q("sum by (slackline_job) (increase(slackline_scheduler_checkpoints_failed_total{JOB}[1h]))", "{{slackline_job}} checkpoints")]),
        ("Age of the last checkpoint", "s", "0: there is none.",
         [q("slackline_scheduler_checkpoint_age_seconds{JOB}", "{{slackline_job}}"),
          q("slackline_scheduler_checkpoint_interval_seconds{JOB}", "{{slackline_job}} interval")]),
        ("Time of a checkpoint", "s", "A server's part.", [p95("slackline_ps_checkpoint_seconds")]),
        ("Backups in step", "short", "And how many the job is to have.",
         [q("slackline_scheduler_servers{JOB, state=\"backup\"}", "{{slackline_job}}"),
          q("slackline_scheduler_wanted_backups{JOB}", "{{slackline_job}} wanted")]),
        ("Lag of backups", "s", "How long the oldest answer waits for the backup.", [q("slackline_ps_replication_lag_seconds{JOB}")]),
        ("Lost", "short", "Answered sub-pushes that a restore has lost; samples trained again.",
         [q("sum by (slackline_job) (slackline_ps_pushes_lost_total{JOB})", "{{slackline_job}} sub-pushes"),
          q("slackline_scheduler_samples_given_twice_total{JOB}", "{{slackline_job}} samples")]),
        ("Free disk", "percentunit", "Where snapshots, checkpoints and the run are written.",
         [q("slackline:disk_free:ratio{JOB}", "{{process}} {{folder}}")]),
    ]),
    ("Energy", [
        ("Power", "watt", "Of all devices that are metered, each once; nothing where there is no meter.",
         [q("sum by (slackline_job) (max by (slackline_job, node, device) (slackline_node_power_watts{JOB}))", "{{slackline_job}}")]),
        ("Power of devices", "watt", "Of each device of each node.",
         [q("max by (slackline_job, node, device) (slackline_node_power_watts{JOB})", "{{node}} {{device}}")]),
        ("Energy", "joule", "Since the workers that are there now began.",
         [q("sum by (slackline_job) (max by (slackline_job, node, device) (slackline_node_energy_joules_total{JOB}))",
            "{{slackline_job}}")]),
        ("Use of GPUs", "percentunit", "The share of time in which a GPU computed.",
         [q("max by (slackline_job, node, device) (slackline_node_gpu_utilisation_ratio{JOB})", "{{node}} {{device}}")]),
        ("Memory of GPUs", "bytes", "In use, by whomever.",
         [q("max by (slackline_job, node, device) (slackline_node_gpu_memory_bytes{JOB})", "{{node}} {{device}}")]),
        ("Temperature of GPUs", "celsius", "As the driver says it.",
         [q("max by (slackline_job, node, device) (slackline_node_temperature_celsius{JOB})", "{{node}} {{device}}")]),
    ]),
    ("Members", [
        ("Workers", "short", "By state.",
         [q("slackline_scheduler_workers{JOB} > 0", "{{state}}"), q("slackline_scheduler_wanted_workers{JOB}", "wanted")]),
        ("Servers by state", "short", "With their backups.",
         [q("slackline_scheduler_servers{JOB} > 0", "{{state}}"), q("slackline_scheduler_wanted_servers{JOB}", "wanted")]),
        ("Processes that answer", "short", "1: it does; 0: it is a member and does not.", [q("up{JOB}")]),
        ("Deaths of workers", "short", "In the last hour.",
         [q("increase(slackline_scheduler_worker_deaths_total{JOB}[1h])", "{{slackline_job}}")]),
        ("Shards that moved", "short", "How often some have changed hands.",
         [q("slackline_scheduler_shard_moves_total{JOB}", "{{slackline_job}}")]),
        ("Versions of the program", "short", "Processes of each.",
         [q("count by (slackline_job, version) (slackline_build_info{JOB})", "{{version}}")]),
    ]),
]

STATS = [
    ("State", [q("slackline_scheduler_job_state_info{JOB} == 1", "{{slackline_job}} {{state}}")], "short", "name"),
    ("Epoch", [q("slackline_scheduler_epoch{JOB}", "{{slackline_job}}")], "short", "value"),
    ("Live workers", [q("slackline_scheduler_live_workers{JOB}", "{{slackline_job}}")], "short", "value"),
    ("Live servers", [q("slackline_scheduler_live_servers{JOB}", "{{slackline_job}}")], "short", "value"),
    ("Samples a second now", [q("slackline_scheduler_samples_per_second{JOB}", "{{slackline_job}}")], "short", "value"),
    ("Test accuracy or mAP", [q("slackline_scheduler_test_accuracy_ratio{JOB}", "{{slackline_job}}")], "percentunit", "value"),
]


def targets(panel, queries):
    for number, (query, legend) in enumerate(queries):
        panel.with_target(prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number)))
    return panel.datasource(SOURCE)


def curve(title, unit, description, queries):
    panel = timeseries.Panel().title(title).description(description).unit(unit).height(HEIGHT).span(8)
    panel.line_width(1).fill_opacity(5).min(0 if unit in ("percentunit", "bytes", "Bps") else None)
    panel.legend(common_builders.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
                 .placement(LegendPlacement.BOTTOM).show_legend(True))
    panel.tooltip(common_builders.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    return targets(panel, queries)


def number(title, queries, unit, text):
    panel = stat.Panel().title(title).unit(unit).height(4).span(4)
    panel.text_mode("name" if text == "name" else "auto").graph_mode("none")
    return targets(panel, queries)


def heat():
    query = q("sum by (le) (increase(slackline_ps_staleness_versions_bucket{JOB}[$__rate_interval]))", "{{le}}")
    panel = heatmap.Panel().title("Staleness, all pushes").description("Sub-pushes by their staleness in versions.")
    panel.height(HEIGHT).span(8).calculate(False).datasource(SOURCE)
    return panel.with_target(prometheus.Dataquery().expr(query[0]).legend_format(query[1]).ref_id("A")
                             .format(PromQueryFormat.HEATMAP))


def build():
    board = dashboard.Dashboard("Slackline").uid("slackline").tags(["slackline"]).editable().refresh("10s")
    board.time("now-1h", "now").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
    board.description("Jobs of Slackline. Made by monitoring/dashboard.py; needs the recording rules of monitoring/rules.")
    board.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    board.with_variable(dashboard.QueryVariable("job").label("Job").datasource(SOURCE)
                        .query("label_values(slackline_build_info, slackline_job)")
                        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
                        .multi(True).include_all(True))
    for panel in STATS:
        board.with_panel(number(*panel))
    for title, panels in ROWS:
        board.with_row(dashboard.Row(title))
        for panel in panels:
            board.with_panel(curve(*panel))
        if title == "Consistency":
            board.with_panel(heat())
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"], ["--queries"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = build()
    if sys.argv[1:] == ["--queries"]:
        for panel in json.loads(text)["panels"]:
            if panel["type"] != "row":
                print(json.dumps([panel["title"], [target["expr"] for target in panel["targets"]]]))
        return 0
    if sys.argv[1:] == ["--check"]:
        with open(FILE, encoding="utf-8") as file:
            if file.read() == text:
                return 0
        print("monitoring/grafana/slackline.json is not what monitoring/dashboard.py makes; run it", file=sys.stderr)
        return 1
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
