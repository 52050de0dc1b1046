// Shows what api/status says; hears of news by api/events, and asks now and then where that does not work.
'use strict';

const byId = (id) => document.getElementById(id);
const POLL_MS = 5000, STREAM_AGAIN_MS = 15000, TICK_MS = 1000;
const ROWS_AT_FIRST = 100;

let status = null;
let heardAt = 0;
let stream = null;
let streamClosedAt = 0;
let polling = false;
let polledAt = 0;
let allWorkers = false;
// Charts with a logarithmic axis.
const logarithmic = new Set();
let settingsKnown = false;
let logAskedAt = 0;
const began = Date.now();

// --- Words ---

const count = (number) => number === null || number === undefined ? '-' : Math.round(number).toLocaleString('en');
const percent = (fraction, digits) => fraction === null || fraction === undefined ? '-' : (100 * fraction).toFixed(digits === undefined ? 1 : digits) + ' %';
function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) { number /= 1024; ++at; }
  return (at === 0 || number >= 100 ? number.toFixed(0) : number.toFixed(1)) + ' ' + units[at];
}
function short(number) {
  if (number >= 1e9) return (number / 1e9).toPrecision(3) + ' G';
  if (number >= 1e6) return (number / 1e6).toPrecision(3) + ' M';
  if (number >= 1e4) return (number / 1e3).toPrecision(3) + ' k';
  return number >= 100 || Number.isInteger(number) ? number.toFixed(0) : number.toPrecision(2);
}
const amount = (number, unit) => { const text = short(number); return text + (/[kMG]$/.test(text) ? '' : ' ') + unit; };
const lossText = (value) => value >= 100 ? value.toPrecision(4) : value.toFixed(value >= 10 ? 2 : 3);
const clock = (time) => new Date(time).toLocaleTimeString('en-GB');
const TONES = {live: 'good', training: 'good', done: 'good', joining: 'blue', starting: 'blue', draining: 'warning', standby: 'neutral', left: 'neutral', stopped: 'neutral', dead: 'critical', failed: 'critical', lost: 'critical'};
const SIGNS = {live: '●', training: '●', done: '✓', joining: '◌', starting: '◌', draining: '◑', standby: '○', left: '○', stopped: '■', dead: '✕', lost: '✕', failed: '✕'};

function setText(node, text) { if (node.textContent !== text) node.textContent = text; }
function setState(node, state) {
  node.className = node.className.replace(/\b(good|blue|warning|neutral|critical)\b/g, '').trim() + ' ' + (TONES[state] || 'neutral');
  setText(node, (SIGNS[state] || '○') + ' ' + state);
}

// Rows of a table by key; what stays is changed and not made anew.
function fill(body, items, keyOf, make, update) {
  const known = new Map(Array.from(body.children, (row) => [row.dataset.key, row]));
  let at = body.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let row = known.get(key);
    if (row) known.delete(key); else { row = make(item); row.dataset.key = key; }
    if (row === at) at = at.nextElementSibling; else body.insertBefore(row, at);
    update(row, item);
  }
  for (const row of known.values()) row.remove();
}

function cells(number, classes) {
  const row = document.createElement('tr');
  for (let i = 0; i < number; ++i) element('td', classes[i] || '', undefined, row);
  return row;
}

// --- Sections ---

function showHead() {
  setText(byId('name'), status.name);
  document.title = status.name + ' · ' + status.state + ' · Slackline';
  setState(byId('state'), status.state);
  const bound = status.asynchrony.slack_bound;
  const optimizer = status.progress.optimizer;
  setText(byId('mode'), status.asynchrony.mode + (bound === null ? '' : ', slack bound ' + bound) + (optimizer ? ' · ' + optimizer : ''));
  setText(byId('reason'), status.reason);
  setText(byId('folder'), status.run_folder);
}

function showAlerts() {
  const list = byId('alert-list');
  // Said anew only when it is another.
  const said = JSON.stringify(status.alerts.map((alert) => [alert.kind, alert.severity, alert.text]));
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren();
  for (const alert of status.alerts) {
    const item = element('li', '', undefined, list);
    element('b', alert.severity === 'critical' ? 'critical' : 'warning', (alert.severity === 'critical' ? '✕ critical' : '▲ warning'), item);
    item.append(alert.text);
  }
  if (status.alerts.length === 0) element('li', 'good', '✓ none', list);
}

// Of a job that finds objects: what its evaluations measure is no accuracy.
const measuresMap = () => status.progress.test_metric === 'map';

// The job's metric, if its script measures another one than accuracies.
const ownMetric = () => {
  const metric = status.progress.metric;
  return metric && metric.name !== 'accuracy' ? metric : null;
};
const plainText = (value) => String(Number(value.toPrecision(5)));

function showProgress() {
  const progress = status.progress;
  const fraction = progress.samples_total > 0 ? Math.min(1, progress.samples_done / progress.samples_total) : 0;
  byId('bar-done').style.width = (100 * fraction).toFixed(2) + '%';
  byId('bar').setAttribute('aria-valuenow', Math.round(100 * fraction));
  const slack = status.asynchrony, own = ownMetric();
  const showsAccuracy = progress.test_accuracy !== null || (!own && progress.test_loss === null);
  const figures = [
    ['Epoch', progress.epoch + ' of ' + progress.epochs],
    ['Done', percent(fraction, 0)],
    ...(progress.tokens_per_sample > 0 ? [['Tokens', short(progress.tokens_per_sample * progress.samples_done)],
      ['Tokens/s', count(progress.tokens_per_sample * progress.samples_per_second)]] : [['Samples/s', count(progress.samples_per_second)]]),
    ['Train loss', progress.loss === null ? '-' : lossText(progress.loss)],
    ...(measuresMap() || (own && progress.train_accuracy === null) ? [] : [['Train accuracy', percent(progress.train_accuracy)]]),
    ...(showsAccuracy ? [[measuresMap() ? 'Test mAP' : 'Test accuracy', percent(progress.test_accuracy)]]
      : own ? [] : [['Test loss', lossText(progress.test_loss)]]),
    ...(own ? [['Test ' + own.name, own.last === null ? '-' : plainText(own.last)],
      ['Best ' + own.name, own.best === null ? '-' : plainText(own.best)]] : []),
    ...(progress.train_values || []).map((one) => ['Train ' + one.name, plainText(one.value)]),
    ...(progress.test_values || []).filter((one) => !own || one.name !== own.name).map((one) => ['Test ' + one.name, plainText(one.value)]),
    ['Slack', count(slack.slack) + (slack.slack_bound === null ? '' : ' of ' + slack.slack_bound)],
    ['Staleness', slack.staleness_mean.toFixed(2)],
    ['Time', duration(progress.elapsed_s)],
    ['Left', progress.seconds_left === null ? '-' : duration(progress.seconds_left)],
    ['Pushed', bytes(progress.pushed_bytes)],
    ['Pulled', bytes(progress.pulled_bytes)],
    ['Pushes discarded', count(slack.pushes_discarded) + ' of ' + short(slack.pushes_applied + slack.pushes_discarded)],
  ];
  if (status.disk) figures.push(['Disk free', bytes(status.disk.free_bytes)]);
  if (status.energy) figures.push(['Energy', amount(status.energy.total_joules, 'J')], ['Power', amount(status.energy.watts, 'W')]);
  const list = byId('figures');
  while (list.children.length > figures.length) list.lastElementChild.remove();
  figures.forEach(([name, value], i) => {
    const pair = list.children[i] || element('div', '', undefined, list);
    if (pair.children.length === 0) { element('dt', '', '', pair); element('dd', '', '', pair); }
    setText(pair.children[0], name);
    setText(pair.children[1], value);
  });
}

function showCurves() {
  const curve = status.curve;
  drawLines(byId('loss-chart'), [{name: 'training loss', tone: 'blue', times: curve.time_s, values: curve.loss}], {format: lossText, tick: (value) => String(Number(value.toPrecision(3))), log: logarithmic.has('loss')});
  const own = ownMetric();
  setText(byId('accuracy-title'), own ? 'Test ' + own.name : measuresMap() ? 'Mean average precision' : 'Accuracy');
  byId('accuracy-log').hidden = !own;
  if (own) drawLines(byId('accuracy-chart'), [
    {name: own.name, tone: 'green good', dashed: true, dots: curve.metric.length < 60, times: curve.metric_time_s, values: curve.metric},
  ], {format: plainText, tick: (value) => String(Number(value.toPrecision(3))), log: logarithmic.has('accuracy')});
  else drawLines(byId('accuracy-chart'), [
    ...(measuresMap() ? [] : [{name: 'training', tone: 'blue', times: curve.time_s, values: curve.train_accuracy}]),
    {name: 'test', tone: 'green good', dashed: true, dots: curve.test_time_s.length < 60, times: curve.test_time_s, values: curve.test_accuracy},
  ], {format: (value) => percent(value, value >= 0.995 && value < 0.99995 ? 1 : 0), top: 1});
  drawLines(byId('rate-chart'), [{name: 'samples/s', tone: 'blue', times: curve.time_s, values: curve.samples_per_second}], {format: short, zero: true});
}

function showStaleness() {
  const buckets = status.asynchrony.staleness;
  // Many empty ones at the end of a long tail are of no use.
  drawColumns(byId('staleness-chart'), buckets.map((one) => ({name: one.from === one.to ? String(one.from) : one.from + '+', value: one.answers})),
    {label: 'Pushes by staleness', format: short, axis: 'versions applied since the pull', log: logarithmic.has('staleness')});
}

const orderOf = (worker) => worker.state === 'dead' && worker.silent_s < 600 ? 0 : worker.state === 'live' || worker.state === 'joining' ? 1 : worker.state === 'standby' ? 2 : 3;

function showWorkers() {
  const counts = status.worker_counts, slack = status.asynchrony;
  const parts = ['live', 'joining', 'standby', 'left', 'dead'].filter((state) => counts[state] > 0).map((state) => counts[state] + ' ' + state);
  setText(byId('workers-summary'), (parts.join(', ') || 'none yet') +
    (counts.clock_min === null ? '' : '; clocks ' + counts.clock_min + ' to ' + counts.clock_max) +
    (slack.slack_bound === null ? '' : '; the dashed line is the slack bound: ' + slack.slack_bound + ' clocks ahead of the slowest'));
  const many = status.workers.length > ROWS_AT_FIRST;
  const live = status.workers.filter((worker) => worker.state === 'live');
  // Reports come up to a heartbeat apart: what they say of the slack may be over the bound a little.
  const widest = Math.max(1, slack.slack_bound === null ? 0 : Math.ceil(slack.slack_bound * 1.25), ...live.map((worker) => worker.slack));
  showSlacks(many ? live : [], widest);
  const sorted = many ? status.workers.slice().sort((one, other) => orderOf(one) - orderOf(other) || one.slack - other.slack || one.worker - other.worker)
    : status.workers;
  const shown = allWorkers ? sorted : sorted.slice(0, ROWS_AT_FIRST);
  const button = byId('workers-all');
  button.hidden = !many;
  setText(button, allWorkers ? 'Show ' + ROWS_AT_FIRST : 'Show all ' + status.workers.length);
  fill(byId('workers').tBodies[0], shown, (worker) => worker.worker, makeWorker, (row, worker) => showWorker(row, worker, widest));
}

// How many workers are how far ahead.
function showSlacks(live, widest) {
  const place = byId('slacks');
  if (live.length === 0) return place.replaceChildren();
  const bins = Math.min(40, widest + 1), size = (widest + 1) / bins;
  const columns = Array.from({length: Math.ceil(bins)}, (_, i) => ({name: String(Math.round(i * size)), value: 0}));
  for (const worker of live) ++columns[Math.min(columns.length - 1, Math.floor(worker.slack / size))].value;
  const bound = status.asynchrony.slack_bound;
  drawColumns(place, columns, {label: 'Workers by clocks ahead of the slowest', format: short, axis: 'clocks ahead of the slowest worker', height: 150,
    bound: bound === null ? undefined : (bound + 1) / size});
}

function makeWorker() {
  const row = cells(9, ['', '', 'lane', 'number', 'number', 'number', 'number', 'number', '']);
  const track = element('div', 'track', undefined, row.cells[2]);
  element('div', 'run', undefined, track);
  element('div', 'limit', undefined, track);
  return row;
}

function showWorker(row, worker, widest) {
  const lost = worker.state === 'dead' && worker.silent_s < 600;
  setText(row.cells[0], worker.name);
  setState(row.cells[1], lost ? 'lost' : worker.state);
  row.cells[1].title = worker.reason;
  const live = worker.state === 'live';
  const track = row.cells[2].firstChild, bound = status.asynchrony.slack_bound;
  track.firstChild.hidden = !live;
  track.firstChild.style.width = (100 * worker.slack / widest).toFixed(1) + '%';
  track.firstChild.className = worker.waiting ? 'run waits' : 'run';
  track.lastChild.hidden = bound === null || !live;
  if (bound !== null) track.lastChild.style.left = (100 * bound / widest).toFixed(1) + '%';
  track.setAttribute('role', 'img');
  track.setAttribute('aria-label', live ? worker.slack + ' clocks ahead of the slowest' + (worker.waiting ? ', waiting' : '') : lost ? 'lost: ' + worker.reason : 'not in the clock');
  setText(row.cells[3], live ? worker.clock + (worker.slack > 0 ? ' (+' + worker.slack + ')' : '') : '-');
  setText(row.cells[4], live ? count(worker.samples_per_second) : '-');
  setText(row.cells[5], percent(worker.wait_fraction, 0));
  setText(row.cells[6], worker.staleness_mean.toFixed(1) + ' / ' + worker.staleness_max);
  setText(row.cells[7], duration(live ? worker.idle_s : worker.silent_s));
  const devices = worker.devices && worker.devices.length > 0 ? `[${worker.devices.join(' ')}]` : '';
  setText(row.cells[8], [worker.topology || worker.host, devices, worker.pid || ''].filter(Boolean).join(', '));
}

function showServers() {
  setText(byId('moving'), status.moving ? 'moving ' + status.moving : '');
  const shards = new Map();
  for (const shard of status.shards) {
    if (!shards.has(shard.server)) shards.set(shard.server, []);
    shards.get(shard.server).push(shard);
  }
  fill(byId('servers').tBodies[0], status.servers, (server) => server.name + '/' + server.state, () => cells(9, ['', '', '', 'number', 'number', 'number', 'number', '', '']),
    (row, server) => showServer(row, server, server.shards > 0 ? shards.get(server.server) || [] : []));
}

function showServer(row, server, shards) {
  setText(row.cells[0], server.name);
  row.cells[0].title = server.address;
  setState(row.cells[1], server.state);
  row.cells[1].title = server.reason;
  const said = server.shards + ' ' + shards.map((shard) => shard.shard + (shard.replica_in_step ? '+' : '')).join(' ');
  if (row.cells[2].dataset.said !== said) {
    row.cells[2].dataset.said = said;
    const boxes = element('span', 'cells');
    for (const shard of shards.slice(0, 32)) {
      const box = element('i', shard.replica_in_step ? 'copied' : '', undefined, boxes);
      box.title = 'shard ' + shard.shard + ', ' + bytes(shard.bytes) + (shard.replica ? ', replica on ' + shard.replica : '');
    }
    row.cells[2].replaceChildren(boxes, document.createTextNode(String(server.shards)));
  }
  setText(row.cells[3], bytes(server.bytes));
  setText(row.cells[4], server.resident_bytes > 0 ? bytes(server.resident_bytes) : '-');
  setText(row.cells[5], short(server.steps_per_second));
  setText(row.cells[6], server.version_min === server.version_max ? String(server.version_max) : server.version_min + '–' + server.version_max);
  const backup = server.backup;
  row.cells[7].className = backup ? (backup.in_step ? 'good' : 'warning') : server.wants_backup && server.state === 'live' ? 'warning' : '';
  setText(row.cells[7], backup ? backup.name + (backup.in_step ? ', in step' : ', catching up') : server.wants_backup && server.state === 'live' ? 'missing' : '-');
  row.cells[8].className = server.snapshot_error ? 'warning' : '';
  row.cells[8].title = server.snapshot_error;
  setText(row.cells[8], server.snapshot_error ? 'fails' : server.durable ? 'yes' : 'no');
}

function showNodes() {
  const place = byId('nodes');
  const said = JSON.stringify(status.nodes);
  if (place.dataset.said === said) return;
  place.dataset.said = said;
  place.replaceChildren();
  let list = null, above = null;
  for (const node of status.nodes) {
    if (node.switch_name !== above) {
      above = node.switch_name;
      if (above) element('h3', '', 'switch ' + above, place);
      list = element('ul', '', undefined, place);
    }
    const item = element('li', '', undefined, list);
    element('b', '', node.host || 'unknown machine', item);
    const kinds = [['servers', node.servers], ['backups', node.backups], ['workers', node.workers]].filter((kind) => kind[1].length > 0);
    for (const [kind, names] of kinds) element('div', '', kind + ': ' + names.slice(0, 16).join(', ') + (names.length > 16 ? ' and ' + (names.length - 16) + ' more' : ''), item);
  }
  if (status.nodes.length === 0) element('p', 'muted', 'nobody is there yet', place);
}

function showCheckpoints() {
  const all = status.checkpoints;
  const parts = [all.whole > 0 ? 'last: ' + all.whole + ', ' + duration(all.age_s) + ' ago, epochs complete: ' + all.epochs : 'none yet'];
  if (all.in_progress > 0) parts.push(all.in_progress + ' is being made');
  if (all.failed > 0) parts.push(all.failed + ' failed: ' + all.error);
  setText(byId('checkpoints-summary'), parts.join('; '));
  byId('checkpoints').hidden = all.kept.length === 0;
  fill(byId('checkpoints').tBodies[0], all.kept.slice().reverse(), (one) => one.number, () => cells(3, ['', 'number', '']), (row, one) => {
    setText(row.cells[0], String(one.number));
    setText(row.cells[1], bytes(one.bytes));
    setText(row.cells[2], duration(one.age_s) + ' ago');
  });
}

function showEvents() {
  const list = byId('events');
  const said = status.events_total + '/' + status.events.length;
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren();
  for (const event of status.events.slice().reverse()) {
    const item = element('li', '', undefined, list);
    const time = element('time', '', clock(event.unix_ms), item);
    time.dateTime = new Date(event.unix_ms).toISOString();
    item.append(event.text);
  }
}

function show() {
  if (status === null) return;
  for (const part of [showHead, showAlerts, showProgress, showCurves, showStaleness, showWorkers, showServers, showNodes, showCheckpoints, showEvents]) part();
}

// --- Settings and logs: asked for when somebody opens them ---

// The answer, or null.
async function ask(path) {
  try {
    const answer = await fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(POLL_MS)});
    return answer.ok ? answer : null;
  } catch (error) {
    return null;
  }
}

function showSettings(id, settings) {
  fill(byId(id).tBodies[0], settings, (one) => one.key, () => cells(2, []), (row, one) => {
    setText(row.cells[0], one.key);
    setText(row.cells[1], one.value);
    row.cells[1].title = one.value;
  });
}

async function loadSettings() {
  if (settingsKnown || !byId('settings').open) return;
  settingsKnown = true;
  const answer = await ask('api/settings');
  // Opened again, it tries again.
  if (answer === null) { settingsKnown = false; return; }
  const settings = (await answer.json()).settings;
  showSettings('settings-set', settings.filter((one) => !one.default));
  showSettings('settings-default', settings.filter((one) => one.default));
}

async function loadLogs() {
  if (!byId('logs').open || document.hidden) return;
  logAskedAt = Date.now();
  const list = await ask('api/logs'), names = byId('log-name'), note = byId('log-note');
  if (list === null) { setText(note, 'no answer'); return; }
  const logs = (await list.json()).logs, chosen = names.value;
  const said = JSON.stringify(logs.map((one) => one.name));
  if (names.dataset.said !== said) {
    names.dataset.said = said;
    names.replaceChildren();
    for (const one of logs) element('option', '', one.name, names).value = one.name;
    if (logs.some((one) => one.name === chosen)) names.value = chosen;
  }
  if (logs.length === 0) { setText(note, 'the run folder has none'); return; }
  const name = names.value, answer = await ask('api/logs?name=' + encodeURIComponent(name));
  // Another one may have been chosen meanwhile.
  if (name !== names.value) return;
  setText(note, answer === null ? 'no answer' : 'as of ' + clock(Date.now()));
  if (answer === null) return;
  const place = byId('log-text'), atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  setText(place, await answer.text());
  if (atEnd) place.scrollTop = place.scrollHeight;
}

// --- News ---

function hear(text) {
  status = JSON.parse(text);
  heardAt = Date.now();
  showConnection();
  if (!document.hidden) show();
}

function showConnection() {
  const line = byId('connection');
  const patience = Math.max(4000, 4 * (status === null ? 1000 : status.report_every_ms));
  const ended = status !== null && ['done', 'failed', 'stopped'].includes(status.state);
  const silent = Date.now() - (heardAt || began);
  const away = silent > patience;
  line.classList.toggle('away', away && !ended);
  if (!away) setText(line, status === null ? 'connecting' : stream !== null && stream.readyState === 1 ? 'connected, live' : 'asks every 5 s');
  else if (ended) setText(line, 'the run is over; as of ' + clock(heardAt));
  else setText(line, '✕ no connection since ' + clock(heardAt || began) + ' (' + duration(silent / 1000) + '); trying again');
}

function follow() {
  stream = new EventSource('api/events');
  stream.addEventListener('status', (event) => hear(event.data));
  stream.onerror = () => {
    // It tries again by itself unless it was refused.
    if (stream !== null && stream.readyState === EventSource.CLOSED) { stream = null; streamClosedAt = Date.now(); }
  };
}

async function poll() {
  if (polling) return;
  polling = true;
  polledAt = Date.now();
  try {
    const answer = await fetch('api/status', {cache: 'no-store', signal: AbortSignal.timeout(POLL_MS)});
    if (answer.ok) hear(await answer.text());
  } catch (error) {
    // The line above the page says since when.
  } finally {
    polling = false;
  }
}

function tick() {
  showConnection();
  const now = Date.now();
  if (stream === null && now - streamClosedAt > STREAM_AGAIN_MS) follow();
  if (now - heardAt > POLL_MS && now - polledAt > POLL_MS) poll();
  if (now - logAskedAt > POLL_MS) loadLogs();
}

byId('workers-all').addEventListener('click', () => { allWorkers = !allWorkers; show(); });
for (const button of document.querySelectorAll('button[data-chart]')) {
  button.addEventListener('click', () => {
    const chart = button.dataset.chart;
    if (!logarithmic.delete(chart)) logarithmic.add(chart);
    button.setAttribute('aria-pressed', String(logarithmic.has(chart)));
    show();
  });
}
byId('settings').addEventListener('toggle', loadSettings);
byId('logs').addEventListener('toggle', loadLogs);
byId('log-name').addEventListener('change', () => { setText(byId('log-text'), ''); loadLogs(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden) show(); });
let resized = 0;
window.addEventListener('resize', () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(show); });
setInterval(tick, TICK_MS);
follow();
poll();
loadSettings();
