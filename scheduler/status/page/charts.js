// Curves and columns as SVG, sized to their place. Texts only ever go in as text.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';

function svg(tag, attributes, parent, text) {
  const node = document.createElementNS(SVG, tag);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function element(tag, className, text, parent) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

// Round numbers from `low` to `high`, about `count` of them.
function ticks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

// Round numbers for a logarithmic axis: 1, 2 and 5 of each decade, or whole decades where those are many.
function logTicks(low, high) {
  const found = [], decades = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
    for (const digit of [1, 2, 5]) {
      const at = digit * Math.pow(10, power);
      if (at < low || at > high) continue;
      found.push(at);
      if (digit === 1) decades.push(at);
    }
  }
  if (found.length < 3) return ticks(low, high, 5);
  return found.length <= 8 ? found : decades.filter((_, i) => i % Math.ceil(decades.length / 8) === 0);
}

// Round numbers of times, in steps that clocks have.
function timeTicks(end, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const step = steps.find((one) => end / one <= count) || 86400 * Math.ceil(end / 86400 / count);
  return Array.from({length: Math.floor(end / step) + 1}, (_, i) => i * step);
}

// 90 -> "1:30"; 30 -> "30 s".
function duration(seconds) {
  if (!Number.isFinite(seconds)) return '-';
  const whole = Math.round(seconds);
  if (whole < 60) return whole + ' s';
  const two = (number) => String(number).padStart(2, '0');
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return hours > 0 ? hours + ':' + two(minutes) + ':' + two(whole % 60) : minutes + ':' + two(whole % 60);
}

// Lines over time. series: [{name, tone, dashed, times, values, dots}], values may have nulls.
// options: {format, tick: for the axis, zero: from 0 on, top: no higher than, log: logarithmic, without values up to 0}
function drawLines(place, series, options) {
  // Values as they are drawn.
  const scaled = options.log ? (value) => value > 0 ? Math.log10(value) : null : (value) => value;
  const drawn = series.map((one) => ({...one, values: one.values.map((value) => value === null ? null : scaled(value))}));
  const width = Math.max(220, place.clientWidth), height = 200;
  const left = 46, right = 10, top = 8, bottom = 22;
  let lowest = Infinity, highest = -Infinity, end = 0, points = 0;
  for (const one of drawn) {
    one.values.forEach((value, i) => {
      if (value === null) return;
      ++points;
      lowest = Math.min(lowest, value);
      highest = Math.max(highest, value);
      end = Math.max(end, one.times[i]);
    });
  }
  if (points === 0) {
    place.replaceChildren(element('p', 'muted', 'nothing yet'));
    place.figure = null;
    return;
  }
  if (options.zero) lowest = Math.min(0, lowest);
  if (highest - lowest < 1e-9) { highest += Math.abs(highest) * 0.1 || 1; if (!options.zero) lowest -= Math.abs(lowest) * 0.1; }
  const room = (highest - lowest) * 0.06;
  highest += room;
  if (!options.zero) lowest -= room;
  if (options.top !== undefined) highest = Math.min(highest, options.top);
  end = Math.max(end, 1e-3);
  const x = (time) => left + (width - left - right) * time / end;
  const y = (value) => top + (height - top - bottom) * (1 - (value - lowest) / (highest - lowest));

  // What is there stays, so that the focus of the keyboard does.
  if (!place.figure) {
    const figure = element('div', '', undefined, undefined);
    const image = svg('svg', {role: 'img', tabindex: '0'}, figure);
    const legend = element('p', 'legend', undefined, figure);
    place.replaceChildren(figure);
    place.figure = {image, legend, at: null};
    image.addEventListener('pointermove', (event) => readAt(place, event.offsetX));
    image.addEventListener('pointerleave', () => { place.figure.at = null; readOut(place); });
    image.addEventListener('keydown', (event) => step(place, event));
    image.addEventListener('blur', () => { place.figure.at = null; readOut(place); });
  }
  const figure = place.figure;
  figure.series = series;
  figure.options = options;
  figure.x = x;
  figure.span = {top, bottom: height - bottom};
  const image = figure.image;
  image.replaceChildren();
  image.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
  image.setAttribute('height', height);
  image.setAttribute('aria-label', series.filter((one) => one.values.length).map((one) => {
    const values = one.values.filter((value) => value !== null);
    return values.length === 0 ? '' : one.name + ' from ' + options.format(values[0]) + ' to ' +
      options.format(values[values.length - 1]) + ' in ' + duration(end);
  }).filter(Boolean).join('; ') + '. Arrow keys read single values.');
  for (const value of options.log ? logTicks(Math.pow(10, lowest), Math.pow(10, highest)) : ticks(lowest, highest, 5)) {
    const at = y(scaled(value));
    svg('line', {class: 'axis', x1: left, x2: width - right, y1: at, y2: at}, image);
    svg('text', {x: left - 6, y: at + 4, 'text-anchor': 'end'}, image, (options.tick || options.format)(value));
  }
  // No more than fit side by side.
  const times = timeTicks(end, Math.max(2, Math.floor(width / 90)));
  for (const time of times) {
    const anchor = time === 0 ? 'start' : x(time) > width - 30 ? 'end' : 'middle';
    svg('text', {x: x(time), y: height - 6, 'text-anchor': anchor}, image, duration(time));
  }
  for (const one of drawn) {
    let path = '';
    let pen = false;
    one.values.forEach((value, i) => {
      if (value === null) { pen = false; return; }
      const clipped = Math.min(highest, Math.max(lowest, value));
      path += (pen ? 'L' : 'M') + x(one.times[i]).toFixed(1) + ' ' + y(clipped).toFixed(1);
      pen = true;
    });
    if (path) svg('path', {class: 'line ' + one.tone + (one.dashed ? ' dashed' : ''), d: path}, image);
    if (one.dots) {
      one.values.forEach((value, i) => {
        if (value !== null) svg('circle', {class: 'dot ' + one.tone, r: 3, cx: x(one.times[i]), cy: y(value)}, image);
      });
    }
  }
  readOut(place);
}

// The point of the first series that is nearest to `offset` pixels.
function readAt(place, offset) {
  const figure = place.figure;
  if (!figure) return;
  const times = figure.series[0].times;
  if (times.length === 0) return;
  let best = 0;
  times.forEach((time, i) => {
    if (Math.abs(figure.x(time) - offset) < Math.abs(figure.x(times[best]) - offset)) best = i;
  });
  figure.at = best;
  readOut(place);
}

function step(place, event) {
  const figure = place.figure, last = figure.series[0].times.length - 1;
  const from = figure.at === null ? last : figure.at;
  const to = {ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, PageUp: from - 20, PageDown: from + 20}[event.key];
  if (to === undefined) return;
  event.preventDefault();
  figure.at = Math.min(last, Math.max(0, to));
  readOut(place);
}

// The legend, with the values of the point that is read, or else the last ones.
function readOut(place) {
  const figure = place.figure;
  if (!figure) return;
  const {image, legend, series, options} = figure;
  image.querySelectorAll('.mark').forEach((mark) => mark.remove());
  const first = series[0].times;
  const read = figure.at === null ? null : Math.min(figure.at, first.length - 1);
  const time = read === null ? Infinity : first[read];
  const said = series.map((one) => {
    let value = null;
    one.values.forEach((at, i) => { if (at !== null && one.times[i] <= time) value = at; });
    return value === null ? '-' : options.format(value);
  });
  // Nothing is made anew that says the same.
  if (legend.children.length !== series.length + 1) {
    legend.replaceChildren();
    for (const one of series) {
      const item = element('span', '', undefined, legend);
      element('span', 'key ' + one.tone + (one.dashed ? ' dashed' : ''), undefined, item);
      element('span', '', '', item);
    }
    element('span', 'muted', '', legend);
  }
  series.forEach((one, i) => { legend.children[i].lastChild.textContent = one.name + ' ' + said[i]; });
  legend.lastChild.textContent = read === null ? '' : 'at ' + duration(time);
  if (read !== null) svg('line', {class: 'mark', x1: figure.x(time), x2: figure.x(time), y1: figure.span.top, y2: figure.span.bottom}, image);
}

// Columns side by side. columns: [{name, value}]; options: {label, format, axis, bound: after which column a line stands,
// log: logarithmic, for values from 1 on}
function drawColumns(place, columns, options) {
  const total = columns.reduce((sum, one) => sum + one.value, 0);
  if (!(total > 0)) {
    place.replaceChildren(element('p', 'muted', 'nothing yet'));
    return;
  }
  const width = Math.max(220, place.clientWidth), height = options.height || 200;
  const left = 46, right = 10, top = 8, bottom = 38;
  const highest = Math.max(...columns.map((one) => one.value));
  const image = svg('svg', {role: 'img', viewBox: '0 0 ' + width + ' ' + height, height});
  image.setAttribute('aria-label', options.label + ': ' +
    columns.filter((one) => one.value > 0).slice(0, 12).map((one) => one.name + ': ' + options.format(one.value)).join(', '));
  const scaled = options.log ? (value) => Math.log10(1 + value) : (value) => value;
  const y = (value) => top + (height - top - bottom) * (1 - scaled(value) / scaled(highest));
  for (const value of options.log ? logTicks(1, Math.max(2, highest)).filter((one) => one <= highest) : ticks(0, highest, 3)) {
    svg('line', {class: 'axis', x1: left, x2: width - right, y1: y(value), y2: y(value)}, image);
    svg('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, image, options.format(value));
  }
  const pitch = (width - left - right) / columns.length;
  // Names that would touch are left out.
  const every = Math.max(1, Math.ceil(Math.max(...columns.map((one) => one.name.length)) * 8 / pitch));
  columns.forEach((one, i) => {
    const x = left + i * pitch;
    const column = svg('rect', {class: 'column', x: x + pitch * 0.1, width: Math.max(1, Math.min(pitch * 0.8, 48)), y: y(one.value), height: Math.max(0, y(0) - y(one.value))}, image);
    svg('title', {}, column, one.name + ': ' + options.format(one.value));
    if (i % every === 0) svg('text', {x: x + pitch * 0.1 + Math.min(pitch * 0.8, 48) / 2, y: height - bottom + 15, 'text-anchor': 'middle'}, image, one.name);
  });
  if (options.bound !== undefined && options.bound <= columns.length) {
    const x = left + options.bound * pitch;
    svg('line', {class: 'bound', x1: x, x2: x, y1: top, y2: height - bottom}, image);
  }
  svg('text', {x: width - right, y: height - 4, 'text-anchor': 'end'}, image, options.axis);
  place.replaceChildren(image);
}
