// Draws the data of board.json, once a second. All text goes through textContent.
'use strict'
const keptMs = 600_000
const shownMs = 60_000 // at least, however short the past is
const overlapMs = 5000 // requested again: a mount's sample may arrive after a newer one of another mount
const samples = new Map() // of each mount, the oldest first
let latest = 0 // milliseconds since 1970 of the newest sample

const svgSpace = 'http://www.w3.org/2000/svg'
// make makes an element with attributes and children; strings are text.
function make(name, attributes = {}, ...children) {
  const e = ['svg', 'path'].includes(name) ? document.createElementNS(svgSpace, name) : document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value)
  e.append(...children)
  return e
}

const percent = share => (100 * share).toFixed(share < 0.0995 ? 1 : 0) + ' %'
function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
  let i = 0
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++ }
  return (n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)) + ' ' + units[i]
}
function duration(seconds) {
  const s = Math.round(seconds), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60
  return h > 0 ? h + ' h ' + m + ' min' : m >= 10 || (m > 0 && s % 60 === 0) ? m + ' min' : m > 0 ? m + ' min ' + s % 60 + ' s' : s + ' s'
}
const left = (seconds, share) => share >= 1 ? 'done' : seconds < 0 ? '' : duration(seconds) + ' left'

function meter(share) {
  const bar = make('i')
  bar.style.width = 100 * Math.min(Math.max(share, 0), 1) + '%'
  return make('div', {class: 'meter'}, bar)
}

// curve draws layers of values over the last minutes, each stacked on the one before it.
// A gap of some seconds, in which the mount did not answer, is left empty.
function curve(title, points, layers, top, unit) {
  const width = 600, height = 100
  const span = Math.min(Math.max(points.length ? latest - points[0].ms : 0, shownMs), keptMs), begin = latest - span
  const x = ms => ((ms - begin) / span * width).toFixed(1)
  const y = v => (height - Math.min(v / top, 1) * (height - 2)).toFixed(1)
  const svg = make('svg', {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title})
  const runs = []
  points.forEach((p, i) => {
    if (i === 0 || p.ms - points[i - 1].ms > 5000) runs.push([])
    runs[runs.length - 1].push(p)
  })
  const below = points.map(() => 0), at = new Map(points.map((p, i) => [p, i]))
  for (const layer of layers) {
    let area = '', line = ''
    for (const run of runs) {
      const upper = run.map(p => `${x(p.ms)},${y(below[at.get(p)] + layer.value(p))}`)
      const lower = run.map(p => `${x(p.ms)},${y(below[at.get(p)])}`).reverse()
      area += `M${upper.join('L')}L${lower.join('L')}Z`
      line += `M${upper.join('L')}`
    }
    points.forEach((p, i) => { below[i] += layer.value(p) })
    const path = make('path', {d: area, class: 'area'})
    if (layer.color) { path.style.fill = layer.color; path.style.opacity = 0.85 }
    svg.append(path)
    if (!layer.color) svg.append(make('path', {d: line, class: 'line'}))
  }
  return make('figure', {class: 'curve'},
    make('div', {class: 'head'}, make('b', {}, title), make('span', {class: 'soft'}, 'up to ' + unit(top))),
    svg, make('div', {class: 'axis'}, make('span', {}, duration(span / 1000) + ' ago'), make('span', {}, 'now')))
}

const color = i => `var(--s${i % 8})`

function table(name, heads, rows) {
  const cells = (kind, row) => make('tr', {}, ...row.map((cell, i) => make(kind, {class: heads[i][1]}, cell)))
  return make('div', {class: 'scroll'}, make('table', {class: name},
    make('thead', {}, cells('th', heads.map(h => h[0]))), make('tbody', {}, ...rows.map(r => cells('td', r)))))
}

function drawMount(m) {
  const section = make('section', {id: 'mount ' + m.mount}, make('h2', {}, make('code', {}, m.mount)))
  if (m.message) section.append(make('p', {class: 'message'}, m.message))
  const l = m.line
  if (!l) return section
  const body = make('div', m.message ? {class: 'silent'} : {})
  section.append(body)
  body.append(make('p', {class: 'verdict'}, l.verdict.text), make('p', {class: 'soft small'}, l.dataset))
  const now = samples.get(m.mount) || [], rate = now.length ? now[now.length - 1].bytes_per_second : 0
  const tile = (value, what) => make('li', {}, make('b', {}, value), make('span', {}, what))
  body.append(make('ul', {class: 'tiles'},
    tile(percent(m.epoch_share), `of epoch ${l.epoch} read`), tile(left(m.left_seconds, m.epoch_share) || '–', 'until the last stream ends'),
    tile(bytes(rate) + '/s', 'to readers'), tile(percent(1 - l.minute.shares.themselves), 'of the readers’ time waited'),
    tile(String(l.errors), 'requests failed')))

  const stages = l.minute.stages.map(s => s.stage)
  const fastest = Math.max(1, ...now.map(p => p.bytes_per_second))
  body.append(make('div', {class: 'curves'},
    curve('To readers', now, [{value: p => p.bytes_per_second}], fastest * 1.1, v => bytes(v) + '/s'),
    curve('What readers waited for, of their time', now, stages.map((_, i) => ({value: p => p.waited[i] || 0, color: color(i)})), 1, () => '100 %')))
  const legend = make('div', {class: 'legend'})
  stages.forEach((s, i) => {
    const box = make('i')
    box.style.background = color(i)
    legend.append(make('span', {}, box, s))
  })
  body.append(legend)

  const row = (name, minute, second, busy, queued, speed) => [name, meter(minute), percent(minute), percent(second), busy, queued, speed]
  body.append(table('stages', [['stage', 'range'], ['time of readers', 'bar'], ['minute', 'n'], ['second', 'n'], ['busy', 'n wide'], ['queued', 'n wide'], ['rate', 'n wide']],
    [row('themselves', l.minute.shares.themselves, l.second.shares.themselves, '', '', '')].concat(l.minute.stages.map((s, i) => {
      const second = l.second.stages[i] || s
      return row(s.stage, s.waited, second.waited, second.busy.toFixed(2), second.queued.toFixed(1), second.bytes_per_second > 0 ? bytes(second.bytes_per_second) + '/s' : '')
    }))))

  body.append(table('streams', [['stream', 'name'], ['read', 'bar'], ['', 'n'], ['rate', 'n'], ['', 'n wide']], l.streams.map(s => {
    const share = s.epoch_share || (s.size_bytes > 0 ? s.delivered_bytes / s.size_bytes : 1)
    return [s.name, meter(share), percent(share), bytes(s.bytes_per_second) + '/s', left(s.left_seconds, s.delivered_bytes >= s.size_bytes ? 1 : 0)]
  })))
  if (m.more_streams > 0) body.append(make('p', {class: 'soft small'}, `and ${m.more_streams} streams more`))
  body.append(make('dl', {}, ...m.facts.flatMap(f => [make('dt', {}, f.label), make('dd', {}, f.text)])))
  return section
}

async function refresh() {
  const state = document.getElementById('state')
  try {
    const answer = await fetch('board.json?after=' + (latest - overlapMs))
    if (!answer.ok) throw new Error(await answer.text())
    const board = await answer.json()
    for (const m of board.mounts) {
      const before = samples.get(m.mount) || [], last = before.length ? before[before.length - 1].ms : 0
      const kept = before.concat(m.samples.filter(p => p.ms > last))
      for (const p of m.samples) latest = Math.max(latest, p.ms)
      samples.set(m.mount, kept)
    }
    for (const [mount, kept] of samples) {
      if (!board.mounts.some(m => m.mount === mount)) samples.delete(mount)
      else samples.set(mount, kept.filter(p => p.ms > latest - keptMs))
    }
    const n = board.mounts.length
    state.textContent = (n === 0 ? 'you have no mount: make one with lsiofs mount DATASET MNT' : n === 1 ? 'one mount' : n + ' mounts') +
      (board.unseen > 0 ? `, and ${board.unseen} more that are not watched: name those to watch` : '') + ', ' + new Date().toLocaleTimeString()
    document.getElementById('mounts').replaceChildren(...board.mounts.map(drawMount))
  } catch (e) {
    state.textContent = 'lsiofs top does not answer: ' + e.message
  }
  setTimeout(refresh, 1000)
}
refresh()
