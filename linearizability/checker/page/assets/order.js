// One order in which operations may have taken effect, put on the line: a point inside each operation, and the states
// between the points. Refuses to know how points are drawn.

// The place of each point among the events: after both the point before it and its own call, before its own return,
// and half-way where there is room. `order` is what encode.py calls an order; answers null when there is none to show.
function placeOrder(layout, order) {
  if (!order) return null;
  const operations = [];
  const states = [];
  order.operations.forEach((operation, place) => {
    if (!layout.mask[operation]) return;
    operations.push(operation);
    states.push(order.states[place]);
  });
  if (!layout.events.length || (order.operations.length && !operations.length)) return null;
  const total = operations.length;
  const latest = new Int32Array(total);
  let limit = layout.events.length - 1;
  for (let place = total - 1; place >= 0; place--) {
    const operation = operations[place];
    // Of unknown outcome: it may take effect after the client gave up, but it is drawn inside if that explains it.
    limit = Math.min(limit, layout.endPlace[operation] - 1);
    latest[place] = Math.max(limit, layout.callPlace[operation]);
    limit = latest[place];
  }
  const after = new Int32Array(total);
  const earliest = new Int32Array(total);
  let floor = 0;
  for (let place = 0; place < total; place++) {
    floor = Math.max(floor, layout.callPlace[operations[place]]);
    earliest[place] = floor;
  }
  let previous = 0;
  for (let place = 0; place < total; place++) {
    const middle = (earliest[place] + latest[place]) >> 1;
    after[place] = Math.max(previous, middle, earliest[place]);
    previous = after[place];
  }
  const crowd = new Map();
  for (const event of after) crowd.set(event, (crowd.get(event) ?? 0) + 1);
  const numberOf = new Int32Array(data.count).fill(-1);
  operations.forEach((operation, place) => {
    numberOf[operation] = place;
  });
  return { operations, states, before: order.before, after, crowd, numberOf, x: new Float64Array(total) };
}

// Once the scale is there: spread the points that lie between the same two events.
function spreadPoints(layout, placed) {
  if (!placed) return;
  const { after, crowd, x } = placed;
  let rank = 0;
  for (let place = 0; place < x.length; place++) {
    rank = place > 0 && after[place] === after[place - 1] ? rank + 1 : 1;
    const from = layout.at[after[place]];
    const to = after[place] + 1 < layout.at.length ? layout.at[after[place] + 1] : layout.origin + layout.width;
    x[place] = from + ((to - from) * rank) / (crowd.get(after[place]) + 1);
  }
}

function stateBefore(placed, place) {
  return data.texts[place > 0 ? placed.states[place - 1] : placed.before];
}

function stateAfter(placed, place) {
  return data.texts[placed.states[place]];
}
