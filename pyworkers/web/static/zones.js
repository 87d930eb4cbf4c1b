"use strict";
// Shows and takes times in the time zone of the viewer; without it, they are in UTC.
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const name of document.querySelectorAll("[data-zone]")) name.textContent = zone || "UTC";
  for (const field of document.querySelectorAll("[data-zone-name]")) field.value = zone || "UTC";
  if (!zone) return;
  // The label of the column where a row is a card; one of two lines would lie over the next label.
  for (const cell of document.querySelectorAll('[data-label="In UTC"]')) cell.dataset.label = "In yours";
  for (const time of document.querySelectorAll("time[data-local]")) {
    const moment = new Date(time.dateTime);
    if (isNaN(moment)) continue;
    time.title = time.dateTime;
    time.textContent = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  }
})();
