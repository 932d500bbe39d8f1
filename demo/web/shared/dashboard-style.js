/** The dashboard's look; its colours are the page's. */
export const STYLE = `
  :host { display: block; }
  dl {
    display: grid;
    grid-template-columns: repeat(auto-fit, minmax(6.3rem, 1fr));
    gap: .6rem;
    margin: 0;
  }
  .cell, .batches {
    border: 1px solid var(--line);
    border-radius: 10px;
    background: var(--panel);
    overflow: hidden;
  }
  .cell { padding: .5rem 0 0; }
  dt, .batches p { color: var(--soft); font-size: .78rem; }
  dt { padding: 0 .7rem; white-space: nowrap; }
  dd { margin: 0; white-space: nowrap; }
  .value {
    padding-left: .7rem;
    font-size: 1.25rem;
    font-variant-numeric: tabular-nums;
    letter-spacing: -.01em;
  }
  .unit { color: var(--soft); font-size: .78rem; }
  svg { display: block; width: 100%; height: 2rem; }
  polyline {
    fill: none;
    stroke: var(--accent);
    stroke-width: 1.5;
    vector-effect: non-scaling-stroke;
  }
  polygon { fill: var(--tint); }
  .batches { margin-top: .6rem; padding: .5rem .7rem .6rem; }
  .batches p { margin: 0 0 .4rem; }
  .batches div { display: flex; align-items: end; gap: 2px; height: 2.6rem; }
  .batches i { flex: 0 1 2.2rem; border-radius: 2px 2px 0 0; background: var(--accent); }
  .batches i.none { background: var(--line); }
`;
